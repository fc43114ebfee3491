import dataclasses

from rich.console import Console

from workbench.runs.store import TokenRecord
from workbench.terminal import show as terminal


def drawn(*parts, width=100, **options):
    console = Console(width=width, file=None, record=True, **options)
    with console.capture() as captured:
        console.print(*parts)
    return captured.get()


def token(text, fate):
    return TokenRecord(0, 0, text, fate, 0, None, None, None, None, None, [])


def test_what_a_terminal_would_obey_becomes_a_picture():
    assert terminal.plain("a\x1b[31mb\x07\r\n\t🦊\x9b") == "a␛[31mb␇␍\n\t🦊\ufffd"


def test_tokens_are_text_and_never_markup():
    text = terminal.coloured([token("[bold red]", "accepted"), token("[/]\x1b[2J", "corrected")])
    assert text.plain == "[bold red][/]␛[2J"
    assert "\x1b[2J" not in drawn(text, force_terminal=True)


def test_fates_differ_without_colour():
    styles = {
        fate: drawn(terminal.coloured([token("x", fate)]), force_terminal=True, no_color=True)
        for fate in ("accepted", "corrected", "bonus", "sampled", "searched")
    }
    assert len(set(styles.values())) >= 4


def test_a_run_shows_its_texts_figures_and_why_energy_is_missing(run):
    shown = drawn(terminal.run(run), terminal.figures(run.results), width=200)
    for result in run.results[:5]:
        assert result.decoder in shown
    assert "accepted draft" in shown
    assert "tokens/s" in shown
    assert "energy not measured: a test" in shown


def test_an_error_is_shown_where_the_text_would_be(run):
    failed = dataclasses.replace(run.results[1], error="The device ran out of memory [red]", tokens=[], text="")
    assert "ran out of memory [red]" in drawn(terminal.result(failed))
