"""A batch experiment: every way gives the same tokens, counts its own pads, and ends when told to."""

import math
import re
import threading
import time
from dataclasses import replace

import pytest
from workbench.measuring.batch import Ended, Finished, Progress, measure
from workbench.measuring.batch_cells import most_at_once
from workbench.studies.batch_records import WAYS, batches

from decoders import InputError, catalog
from tests.models import POSITIONS, build_pair, build_tokenizer
from workbench.studies.batch import BatchSettings, plan
from workbench.studies.prompts import Prompt, PromptSet
from workbench.studies.settings import Settings

TEXTS = ("abab", "hello hello hel", "one two one two one", "x", "ding dong ding")
PROMPTS = PromptSet("few", tuple(Prompt(text, f"few, line {i}") for i, text in enumerate(TEXTS, 1)))


@pytest.fixture(scope="module")
def pair():
    return build_pair(tokenizer=build_tokenizer())


def settings(*names: str, sizes=(1, 3), temperature=0.0, **changes) -> BatchSettings:
    shared = Settings(tuple(catalog[n]() for n in names), max_new_tokens=10, temperature=temperature, seed=5)
    return BatchSettings(shared, sizes, **changes)


def run(pair, chosen, **options):
    *_, last = measure(pair, PROMPTS, chosen, **options)
    assert isinstance(last, Ended)
    return last.run


@pytest.fixture(scope="module")
def measured(pair):
    return run(pair, settings("lookup", "speculative"))


def test_every_way_gives_greedys_tokens_at_temperature_0(measured):
    assert {(c.reference, c.differing, tuple(c.errors)) for c in measured.cells} == {("greedy", 0, ())}
    assert {c.new_tokens for c in measured.cells if c.batch_size == 1} == {50}
    assert all(c.at_once == c.batch_size for c in measured.cells)


def test_sampled_tokens_do_not_depend_on_the_way_either(pair):
    cells = run(pair, settings("speculative", temperature=1.0, sizes=(1, 2))).cells
    assert {(c.reference, c.differing) for c in cells} == {("greedy", 0), ("speculative", 0)}


def test_another_output_is_counted_where_the_law_is_another(pair):
    """`differing` really compares: a beam search declared lossless would be found out."""
    chosen = settings("beam_search", sizes=(1,))
    honest = run(pair, chosen).cells[-1]
    assert (honest.reference, honest.differing) == ("beam_search", 0)
    method = type("Liar", (catalog["beam_search"],), {"law": "target", "name": "beam_search"})()
    liar = run(pair, replace(chosen, decoding=replace(chosen.decoding, methods=(method,)))).cells[-1]
    assert liar.reference == "greedy"
    assert liar.differing > 0


def test_each_way_pads_what_it_says(measured):
    for decoder in ("lookup", "speculative"):
        cells = {c.way: c for c in measured.cells if c.decoder == decoder and c.batch_size == 3}
        assert list(cells) == list(WAYS)
        assert {w for w, c in cells.items() if c.padded_rows} == {"vanilla", "unpadded_inputs"}
        assert {w for w, c in cells.items() if c.padding_ratio is not None} == {"vanilla", "unpadded_inputs"}
        assert not cells["unpadded"].padded_tokens
        assert not cells["dynamic"].padded_tokens
        assert len({c.fed_tokens for c in cells.values()}) == 1
        assert [w for w, c in cells.items() if c.decode_seconds is None] == ["dynamic"]
    lookup = {c.way: c for c in measured.cells if c.decoder == "lookup" and c.batch_size == 3}
    assert {w for w, c in lookup.items() if c.padded_tokens} == {"vanilla", "unpadded_kv"}


def test_the_last_batch_is_filled_up_from_the_start(measured):
    assert batches("abcde", 3) == [["a", "b", "c"], ["d", "e", "a"]]
    assert batches("ab", 5) == [["a", "b", "a", "b", "a"]]
    assert {c.new_tokens for c in measured.cells if c.batch_size == 3} == {60}


def test_the_first_rounds_are_left_out_of_decoding(measured):
    greedy = next(c for c in measured.cells if c.decoder == "greedy" and c.batch_size == 3)
    assert (greedy.decode_tokens, greedy.passes, greedy.fed_tokens) == (54, 18, 54)
    assert 0 < greedy.decode_seconds < greedy.seconds


def test_acceptance_lengths_add_up_to_the_output(measured):
    for rounds in measured.acceptances.values():
        assert [sum(r) for r in rounds] == [10] * 5
    assert max(map(max, measured.acceptances["speculative"])) > 1
    means = measured.mean_acceptances("speculative")
    assert measured.least_acceptance("speculative", 5) == min(means)
    assert measured.least_acceptance("speculative", 1) == pytest.approx(sum(means) / 5)


def test_the_baseline_runs_once_in_static_and_once_in_dynamic_batches():
    jobs = [(j.method.name, j.size, j.way) for j in plan(settings("greedy", "lookup", ways=("vanilla", "dynamic")))]
    assert jobs == [
        ("greedy", 1, "unpadded"), ("lookup", 1, "unpadded"),
        ("greedy", 3, "unpadded"), ("greedy", 3, "dynamic"), ("lookup", 3, "vanilla"), ("lookup", 3, "dynamic"),
    ]  # fmt: skip


def test_events_tell_how_far_it_is_and_hold_all_so_far(pair):
    events = list(measure(pair, PROMPTS, settings("lookup", ways=("unpadded",))))
    assert [len(e.run.cells) for e in events if isinstance(e, Finished)] == [1, 2, 3, 4]
    first = events[0]
    assert isinstance(first, Progress)
    assert (first.decoder, first.job, first.jobs, first.budget) == ("greedy", 0, 4, 50)
    assert 0 < first.tokens <= first.budget


def test_stop_keeps_what_is_finished_and_a_closed_experiment_is_over(pair):
    stop = threading.Event()
    events = measure(pair, PROMPTS, settings("lookup"), cancel=stop)
    for event in events:
        if isinstance(event, Finished) and len(event.run.cells) == 2:
            stop.set()
    assert isinstance(event, Ended)
    assert event.run.cancelled
    assert len(event.run.cells) == 2
    again = measure(pair, PROMPTS, settings("lookup"))
    next(again)
    again.close()
    assert list(again) == []


def test_the_clock_stands_still_while_the_caller_holds_an_event(pair):
    slow = 0.0
    for event in measure(pair, PROMPTS, settings("lookup", sizes=(1,))):
        time.sleep(0.2)
        slow, last = slow + 0.2, event
    assert sum(c.seconds for c in last.run.cells) < slow


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sizes": (0,)}, "A batch size must be a whole number from 1"),
        ({"sizes": (True,)}, "A batch size must be"),
        ({"sizes": ("8",)}, "A batch size must be"),
        ({"sizes": ()}, "choose at least one of each"),
        ({"ways": ("vanila",)}, "did you mean 'vanilla'"),
        ({"cache_mb": 0}, "cache_mb must be None or a number from 0.01"),
        ({"prefill_chunk": 2.5}, "prefill_chunk must be None or a whole number from 1"),
        (
            {"cache_mb": 1.0},
            "goes only with ways that pad nothing: leave out vanilla, unpadded cache, unpadded inputs, or",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, says):
    with pytest.raises(InputError, match=says):
        settings("lookup", **changes)


def test_a_prompt_that_is_too_long_is_named_before_any_work(pair):
    long = PromptSet("few", (*PROMPTS.prompts, Prompt("a" * POSITIONS, "few, line 9")))
    with pytest.raises(InputError, match=r"few, line 9: its 512 tokens and 10 new ones exceed the 512 positions"):
        measure(pair, long, settings("lookup"))


def test_a_memory_budget_lets_requests_wait(pair):
    """The longest prompt, of 19 tokens, and its 10 new ones fit in once with a draft model; the short ones share its place."""
    rows = 29 * sum(model.row_bytes for model in pair.packed.values())
    bounded = settings("speculative", sizes=(1, 5), ways=("unpadded", "dynamic"), cache_mb=math.ceil(rows / 1e4) / 100)
    cells = run(pair, bounded).cells
    assert {c.differing for c in cells} == {0}
    at_once = {(c.decoder, c.batch_size, c.way): c.at_once for c in cells}
    assert at_once["speculative", 1, "unpadded"] == 1
    assert 1 <= at_once["speculative", 5, "dynamic"] < at_once["greedy", 5, "dynamic"] <= 5
    assert all(0 < c.peak_cache_bytes <= 29 * pair.packed["target"].row_bytes for c in cells)
    assert {c.batch_size for c in cells if c.decode_seconds is not None} == {1}  # those that wait read prompts later


def test_a_budget_too_small_names_the_prompt_and_the_least_that_does(pair):
    tight = settings("lookup", "beam_search", ways=("dynamic",), cache_mb=0.01)
    with pytest.raises(
        InputError, match=r"few, line 3: with beam_search its 19 tokens and 10 new ones can need"
    ) as error:
        measure(pair, PROMPTS, tight)
    least = float(re.search(r"give at least ([\d.]+),", str(error.value)).group(1))
    measure(pair, PROMPTS, replace(tight, cache_mb=least))
    with pytest.raises(InputError, match="give at least"):
        measure(pair, PROMPTS, replace(tight, cache_mb=round(least - 0.01, 2)))


def test_chunks_of_prompts_change_no_token(pair):
    chosen = settings("speculative", ways=("vanilla", "unpadded", "dynamic"), prefill_chunk=4)
    found = run(pair, chosen)
    assert {c.differing for c in found.cells} == {0}
    assert {c.batch_size for c in found.cells if c.decode_seconds is not None} == {1}
    assert found.settings["prefill_chunk"] == 4


def test_overlapping_requests_are_counted():
    assert most_at_once([(0, 2), (1, 3), (2, 4)]) == 2
    assert most_at_once([(0, 1)] * 3) == 3


def test_a_decoder_that_needs_a_draft_model_is_refused_before_any_work():
    alone = build_pair(tokenizer=build_tokenizer())
    alone.draft = None
    with pytest.raises(InputError, match="needs a draft model"):
        measure(alone, PROMPTS, settings("speculative"))
