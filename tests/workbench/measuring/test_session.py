import json
import math
import threading
import time
from contextlib import closing
from itertools import pairwise

import pytest
import torch

import decoders
from decoders import InputError
from workbench.measuring import session
from workbench.measuring.gauges import Energy, NoGauge
from workbench.measuring.meter import Meter
from workbench.measuring.session import Ended, Finished, Progress, Started, StopClock, compare, encode_prompt
from workbench.studies.settings import Settings


def settings(*names, **shared):
    return Settings.from_json({"decoders": list(names), "max_new_tokens": 16, **shared})


def finished(events):
    return [e.result for e in events if isinstance(e, Finished)]


def test_events_come_in_order_greedy_first_all_decoders_of_a_seed_before_the_next(pair, unmetered):
    events = list(compare(pair, "abc", settings("mtad", "greedy", repeats=2, seed=5), meter=unmetered))
    outline = [
        (type(e).__name__, (e.decoder, e.repeat, e.job, e.jobs) if isinstance(e, Started) else None) for e in events
    ]
    outline = [x for x in outline if x[0] != "Progress"]
    jobs = [("greedy", 0, 0, 4), ("mtad", 0, 1, 4), ("greedy", 1, 2, 4), ("mtad", 1, 3, 4)]
    assert outline == [x for job in jobs for x in (("Started", job), ("Finished", None))] + [("Ended", None)]
    run = events[-1].run
    assert [(r.decoder, r.repeat, r.seed) for r in run.results] == [
        ("greedy", 0, 5),
        ("mtad", 0, 5),
        ("greedy", 1, 6),
        ("mtad", 1, 6),
    ]
    assert not run.cancelled
    assert run.settings["decoders"] == ["mtad", "greedy"]
    assert run.environment["target"]["parameters"] == sum(p.numel() for p in pair.target.parameters())


def test_a_result_is_what_the_library_gives_alone(pair, unmetered):
    shared = {"temperature": 0.8, "top_k": 30, "top_p": 0.95}
    chosen = Settings.from_json(
        {"decoders": ["speculative"], "speculative": {"draft_length": 2}, "max_new_tokens": 20, "seed": 4, **shared}
    )
    (result,) = finished(compare(pair, "abc", chosen, meter=unmetered))
    alone = decoders.generate(
        pair, "abc", decoders.catalog["speculative"](draft_length=2), max_new_tokens=20, seed=4, **shared
    )
    assert [t.id for t in result.tokens] == alone.tokens
    assert result.text == alone.text
    for name in (
        "new_tokens",
        "target_calls",
        "draft_calls",
        "drafted",
        "tested",
        "accepted",
        "perplexity",
        "bytes_read",
    ):
        assert result.metrics[name] == getattr(alone.metrics, name)


def test_the_counts_equal_those_recomputed_from_the_exported_json(run):
    data = json.loads(json.dumps(run.to_json(), allow_nan=False))
    for result in data["results"]:
        m, rounds, tokens = result["metrics"], result["rounds"], result["tokens"]
        fates = [t["fate"] for r in rounds for t in r["trials"]]
        drafted = [f for f in fates if f in ("accepted", "rejected", "discarded")]
        assert m["new_tokens"] == len(tokens)
        assert m["drafted"] == len(drafted)
        assert m["tested"] == sum(f != "discarded" for f in drafted)
        assert m["accepted"] == fates.count("accepted")
        assert m["target_calls"] == sum(r["target_calls"] for r in rounds)
        assert m["draft_calls"] == sum(r["draft_calls"] for r in rounds)
        assert m["block_efficiency"] == pytest.approx(len(tokens) / m["target_calls"])
        assert m["perplexity"] == pytest.approx(math.exp(-sum(t["log_p"] for t in tokens) / len(tokens)))
        assert m["tokens_per_second"] == pytest.approx(len(tokens) / m["seconds"])
        standing = []
        for r in rounds:
            standing[r["keep"] :] = r["nodes"]
        assert standing == [t["node"] for t in tokens]


def test_perplexity_is_that_of_a_plain_forward_pass(pair, unmetered):
    (result,) = finished(compare(pair, "abc", settings("mtad"), meter=unmetered))
    ids = [*encode_prompt(pair, "abc"), *(t.id for t in result.tokens)]
    with torch.inference_mode():
        log_p = pair.target(torch.tensor([ids])).logits[0].log_softmax(-1)
    places = range(len(ids) - len(result.tokens) - 1, len(ids) - 1)
    nats = sum(log_p[i, ids[i + 1]].item() for i in places) / len(result.tokens)
    assert result.metrics["perplexity"] == pytest.approx(math.exp(-nats), rel=1e-4)


def test_speeds_exclude_the_time_that_the_caller_draws(pair, unmetered, monkeypatch):
    """A caller that holds every update for 20 ms: the seconds are the work's, counted here on a clock that only passes tick."""
    monkeypatch.setattr(session, "UPDATE_SECONDS", 0.0)
    monkeypatch.setattr(session, "DRAWING_SHARE", 1.0)
    draws, began = 0, time.perf_counter()
    for event in compare(pair, "abc", settings("greedy", "dsbd"), meter=unmetered):
        if isinstance(event, Progress):
            draws += 1
            time.sleep(0.02)
        if isinstance(event, Ended):
            spent = sum(r.metrics["seconds"] for r in event.run.results)
            rounds = [x for r in event.run.results for x in r.rounds]
    wall = time.perf_counter() - began
    assert draws > 10
    assert spent <= wall - 0.02 * draws
    assert sum(r.draft_seconds + r.verify_seconds for r in rounds) <= spent + 1e-6


def test_a_stopped_clock_does_not_run():
    now = [10.0]
    clock = StopClock(lambda: now[0])
    now[0] = 12.0
    with clock.stopped():
        now[0] = 17.0
    now[0] = 18.0
    assert clock() == 13.0


def test_updates_come_at_most_ten_times_a_second_and_fewer_where_drawing_is_slow(pair, unmetered, monkeypatch):
    now = [0.0]

    def passing():
        now[0] += 0.03  # each look at the clock, about one a round
        return now[0]

    monkeypatch.setattr(session.time, "monotonic", passing)
    times, slow = {False: [], True: []}, False
    for slow in (False, True):
        for event in compare(pair, "abc", settings("greedy", max_new_tokens=200), meter=unmetered):
            if isinstance(event, Progress):
                times[slow].append(now[0])
                now[0] += slow * 0.5
    gaps = {slow: [b - a for a, b in pairwise(found)] for slow, found in times.items()}
    assert len(gaps[False]) > 5
    assert min(gaps[False]) >= session.UPDATE_SECONDS
    assert min(gaps[True]) >= 0.5 / session.DRAWING_SHARE


def test_progress_counts_tokens_and_shows_what_stands(pair, unmetered, monkeypatch):
    monkeypatch.setattr(session, "UPDATE_SECONDS", 0.0)
    monkeypatch.setattr(session, "DRAWING_SHARE", 1.0)
    events = list(compare(pair, "abc", settings("beam_search", "speculative"), meter=unmetered))
    for name, provisional in (("beam_search", True), ("speculative", False)):
        updates = [e for e in events if isinstance(e, Progress) and e.decoder == name]
        assert updates[0].provisional is provisional
        assert all(0 < len(e.tokens) <= e.budget == 16 for e in updates)
        assert all(e.eta_seconds >= 0 for e in updates)
        assert len(updates[0].rounds) == 1  # a snapshot: it did not grow with the decoder
        result = next(r for r in finished(events) if r.decoder == name)
        assert [t.id for t in updates[-1].tokens] == [t.id for t in result.tokens]


def test_cancelling_ends_within_a_round_and_gives_the_run_so_far(pair, unmetered, monkeypatch):
    monkeypatch.setattr(session, "UPDATE_SECONDS", 0.0)
    monkeypatch.setattr(session, "DRAWING_SHARE", 1.0)
    stop, at = threading.Event(), None
    for event in compare(
        pair, "abc", settings("greedy", "mtad", "dsbd", max_new_tokens=200), meter=unmetered, cancel=stop
    ):
        if isinstance(event, Progress) and event.decoder == "mtad" and len(event.tokens) >= 9 and not at:
            stop.set()
            at = len(event.rounds)
        if isinstance(event, Started):
            assert event.decoder != "dsbd"
    run = event.run
    assert run.cancelled
    assert [(r.decoder, r.finished) for r in run.results] == [("greedy", "budget"), ("mtad", "cancelled")]
    assert len(run.results[1].rounds) - at <= 1
    assert run.results[1].x_greedy is None


def test_closing_frees_the_device(pair, monkeypatch):
    from decoders.engine.model import Engine

    monkeypatch.setattr(session, "UPDATE_SECONDS", 0.0)
    given, released = [], []
    admit, release = Engine.admit, Engine.release
    monkeypatch.setattr(Engine, "admit", lambda self, tree, rows: given.append(id(tree)) or admit(self, tree, rows))
    monkeypatch.setattr(Engine, "release", lambda self, tree: released.append(id(tree)) or release(self, tree))
    gauge = RecordingGauge()
    with closing(compare(pair, "abc", settings("speculative", max_new_tokens=100), meter=Meter(gauge))) as events:
        next(e for e in events if isinstance(e, Progress))
        assert len(given) > len(released)
    assert sorted(given) == sorted(released)
    assert gauge.calls == ["start", "stop"]


class RecordingGauge(NoGauge):
    def __init__(self):
        super().__init__("not measured: a test")
        object.__setattr__(self, "calls", [])

    def start(self):
        self.calls.append("start")

    def stop(self, begun, seconds):
        self.calls.append("stop")
        return Energy(3.0, "measured: GPU energy counter")


def test_energy_is_metered_for_each_decoder_alone(pair):
    gauge = RecordingGauge()
    results = finished(compare(pair, "abc", settings("greedy", "mtad"), meter=Meter(gauge)))
    assert gauge.calls == ["start", "stop"] * 2
    assert [(r.energy.joules, r.metrics["joules"], r.metrics["energy_source"]) for r in results] == [
        (3.0, 3.0, "measured: GPU energy counter")
    ] * 2


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB"), "The device ran out of memory"),
        (RuntimeError("device-side assert\ntrace"), "RuntimeError: device-side assert"),
    ],
)
def test_a_decoder_that_fails_leaves_the_others(pair, unmetered, monkeypatch, failure, message):
    def decode(self, request):
        yield request.ask("target", [request.tip])
        raise failure

    monkeypatch.setattr(decoders.catalog["mtad"], "decode", decode)
    greedy, mtad, dsbd = finished(compare(pair, "abc", settings("greedy", "mtad", "dsbd"), meter=unmetered))
    assert mtad.error.startswith(message)
    assert "\n" not in mtad.error
    assert set(mtad.metrics) == set(greedy.metrics)
    assert greedy.error is dsbd.error is None
    assert dsbd.x_greedy > 0


def test_x_greedy_is_there_only_where_greedy_ran(pair, unmetered):
    with_greedy = finished(compare(pair, "abc", settings("greedy", "mtad"), meter=unmetered))
    without = finished(compare(pair, "abc", settings("mtad"), meter=unmetered))
    speeds = [r.metrics["tokens_per_second"] for r in with_greedy]
    assert [r.x_greedy for r in with_greedy] == [1.0, pytest.approx(speeds[1] / speeds[0])]
    assert without[0].x_greedy is None


def test_at_temperature_0_lossless_decoders_are_held_against_greedy(pair, unmetered):
    names = ("greedy", "speculative", "dsbd", "mtad", "beam_search")
    checks = {
        r.decoder: r.greedy_check
        for r in finished(compare(pair, "abc", settings(*names, temperature=0.0), meter=unmetered))
    }
    assert checks["speculative"].identical
    assert checks["dsbd"].identical
    assert checks["greedy"] is checks["mtad"] is checks["beam_search"] is None
    warm = finished(compare(pair, "abc", settings("greedy", "speculative"), meter=unmetered))
    assert [r.greedy_check for r in warm] == [None, None]


@pytest.mark.parametrize(
    ("prompt", "shared", "message"),
    [
        ("", {}, "The prompt is empty"),
        ("abc", {"chat_template": True}, "no chat template"),
        ("abc" * 200, {}, "exceed the 512 positions"),
        ("abc", {"top_p": 0.0}, "top_p must lie in"),
    ],
)
def test_what_cannot_run_is_refused_at_the_call(pair, unmetered, prompt, shared, message):
    with pytest.raises(InputError, match=message):
        compare(pair, prompt, settings("greedy", **shared), meter=unmetered)


def test_a_decoder_that_needs_a_draft_is_refused_where_there_is_none(pair, byte_tokenizer):
    alone = decoders.ModelPair(pair.target, None, byte_tokenizer)
    with pytest.raises(InputError, match="needs a draft model"):
        compare(alone, "abc", settings("greedy", "mtad"))


def test_a_chat_template_is_applied_once_and_without_further_special_tokens(pair, byte_tokenizer, monkeypatch):
    monkeypatch.setattr(byte_tokenizer, "chat_template", "{% for m in messages %}[{{ m['content'] }}]{% endfor %}>")
    assert encode_prompt(pair, "hi", chat_template=True) == byte_tokenizer("[hi]>").input_ids
