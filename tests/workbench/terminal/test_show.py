"""Runs in a terminal: it obeys nothing in them, and colour is never the only sign."""

import dataclasses

from rich.console import Console

from workbench.kinds.comparison import text
from workbench.runs.events import At, Ended, Progress, Started
from workbench.runs.record import TokenRecord
from workbench.runs.store import RunSummary
from workbench.terminal import show


def drawn(*parts, width=100, **options):
    console = Console(width=width, file=None, record=True, **options)
    with console.capture() as captured:
        console.print(*parts)
    return captured.get()


def token(text, fate):
    return TokenRecord(0, 0, text, fate, 0, None, None, None, None, None, [])


def test_what_a_terminal_would_obey_becomes_a_picture():
    assert show.printable("a\x1b[31mb\x07\r\n\t🦊\x9b") == "a␛[31mb␇␍\n\t🦊\ufffd"


def test_tokens_are_text_and_never_markup():
    text = show.coloured([token("[bold red]", "accepted"), token("[/]\x1b[2J", "corrected")])
    assert text.plain == "[bold red][/]␛[2J"
    assert "\x1b[2J" not in drawn(text, force_terminal=True)


def test_the_id_of_a_run_is_whole_in_80_columns():
    """It was split in two, so that nobody could copy it."""
    line = RunSummary(
        "3f2a9c01d4e5", "2026-11-28T09:05:53", "comparison", "Once upon a time, there was a girl",
        ["greedy", "speculative", "mtad"], "Llama-Stories 7.5M + draft 0.6M, float32, CPU",
        asked="temperature 0.7, top-p 0.9, seed 0",
    )  # fmt: skip
    shown = drawn(show.summaries([line]), width=80)
    assert "3f2a9c01d4e5 " in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_an_error_is_shown_in_place_of_the_text(run):
    empty = dataclasses.replace(run.results[1].alone, tokens=[], text="")
    error = "The device ran out of memory [red]"
    failed = dataclasses.replace(run.results[1], error=error, samples=[empty])
    assert error in drawn(text(failed))


def test_the_bar_names_the_job_and_the_time_left(run, batch_run):
    at = At("lookup", 1, 2, "unpadded_kv", 6, 11, 1, 3)
    happening = [Started(at), Progress(at, 5, 20, [], [], False, 12.4), Ended(batch_run)]
    progress = Console(force_terminal=True, width=200, record=True)
    with progress.capture() as captured:
        assert show.follow(iter(happening), Console(), progress) is batch_run
    shown = captured.get()
    assert (
        "Prompt lookup (7 of 11) · repeat 2 · timing 2 of 3 · batch size 2: unpadded cache" in shown
    )
    assert "5/20 tokens, about 12 s left" in shown


def test_fates_differ_without_colour():
    styles = {
        fate: drawn(show.coloured([token("x", fate)]), force_terminal=True, no_color=True)
        for fate in ("accepted", "corrected", "bonus", "sampled", "searched")
    }
    assert len(set(styles.values())) >= 4
