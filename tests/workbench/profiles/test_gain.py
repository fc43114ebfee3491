"""What a method gains: costs from servers, files and figures, and the gain itself."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from decoders import InputError
from tests.workbench.engines.served import Answers, Call, Reply, a_json, a_stream, served
from workbench.engines.probe import connect
from workbench.engines.record import Record
from workbench.profiles import costs
from workbench.profiles.costs import LARGEST, Steps
from workbench.profiles.gain import best, gains, needed
from workbench.profiles.profile import LONGEST, Curve, Point
from workbench.theory.roofline import Roof, Size

FLAT = Steps("flat", {1: 1.0, 2: 1.0, 4: 1.0, 8: 2.0, 16: 4.0, 32: 8.0})
CURVE = Curve("m", "all", (Point(1, 1.8), Point(3, 2.6)))


def test_a_verification_costs_a_step_of_as_many_tokens():
    assert FLAT.cost(1, 4) == 1.0
    assert FLAT.cost(4, 4) == 4.0
    assert FLAT.cost(4, 3) == 3.0  # between 8 and 16
    assert FLAT.cost(16, 3) is None
    assert Steps("late", {4: 1.0, 8: 1.0}).cost(2, 2) is None


def test_the_gain_is_the_tokens_over_the_cost_and_drafting_is_free_unless_told():
    found = list(gains(CURVE, FLAT, [1, 4, 32]))
    assert [(g.requests, g.point.draft_length) for g in found] == [(1, 1), (1, 3), (4, 1), (4, 3)]
    assert [g.times for g in found] == pytest.approx([1.8, 2.6, 0.9, 0.65])
    assert all(g.free for g in found)
    assert {load: g.point.draft_length for load, g in best(found).items()} == {1: 3, 4: 1}
    told = list(gains(CURVE, FLAT, [1], drafting=0.2))
    assert [g.times for g in told] == pytest.approx([1.8 / 1.2, 2.6 / 1.6])
    assert not any(g.free for g in told)


def test_rounds_without_a_draft_are_plain_steps_and_trees_cost_their_tokens():
    half = Curve("lookup", "all", (Point(3, 3.0, share=0.5),))
    (gain,) = gains(half, FLAT, [4])
    assert gain.times == pytest.approx((0.5 * 3 + 0.5) / (0.5 * 4 + 0.5))
    tree = Curve("tree", "all", (Point(2, 2.0, drafted=7.0),))
    (gain,) = gains(tree, FLAT, [2])
    assert gain.cost == 4.0
    assert needed([tree, CURVE], [1, 2]) == 16


def test_figures_are_a_roofline():
    found = costs.of_figures(1000.0, 100.0, 1.0, 300)
    assert sorted(found.seconds)[-1] == 512
    assert found.seconds[1] == found.seconds[64] == pytest.approx(2e-3)
    assert found.seconds[512] == pytest.approx(2 * 512e9 / 1e14)
    assert "by a model" in found.server


def test_a_roofline_has_its_knee_between_powers_of_two():
    """It was a straight line from 256 to 512, so 320 tokens cost more than the model says."""
    h100, size = Roof(3350e9, 989e12), Size(32e9, 64e9)
    found = costs.of_figures(3350.0, 989.0, 32.0, 320)
    for requests, tokens in ((64, 5), (64, 4), (1, 290), (60, 8)):
        exact = size.seconds(h100, requests, tokens) / size.seconds(h100, requests, 1)
        assert found.cost(requests, tokens) == pytest.approx(exact)
    assert min(costs.of_figures(1000.0, 0.1, 1.0, 8).seconds) == 1  # a knee below one request


def test_figures_of_a_device_that_takes_hours_for_a_step_are_refused():
    """Their costs could be written, and then not be read."""
    with pytest.raises(InputError, match="would take more than 3,600 s"):
        costs.of_figures(1e-3, 1.0, 1e6, 8)


def test_costs_for_the_longest_drafts_come_back_from_their_file():
    found = costs.of_figures(3350.0, 989.0, 32.0, LARGEST * (LONGEST + 1))
    assert costs.loads(json.loads(found.dumps())) == found


def test_costs_come_back_from_their_file():
    assert costs.loads(json.loads(FLAT.dumps())) == FLAT


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "the file"),
        ({}, "server"),
        ({"server": "x", "seconds": {}}, "seconds"),
        ({"server": "x", "seconds": {"0": 1.0}}, "seconds.0"),
        ({"server": "x", "seconds": {"many": 1.0}}, "seconds.many"),
        ({"server": "x", "seconds": {"1": 0}}, "seconds.1"),
        ({"server": "x", "seconds": {"1": -1}}, "seconds.1"),
        ({"server": "x", "seconds": {"1": float("inf")}}, "seconds.1"),
        ({"server": "x", "seconds": {"1": 1}, "format": "other"}, "format"),
        ({"server": "x", "seconds": {"1": 1}, "more": 1}, "more"),
    ],
)
def test_malformed_costs_are_refused_in_a_sentence(data, says):
    with pytest.raises(InputError, match=f"This file of costs cannot be used: {says}"):
        costs.loads(data)


# ---- costs of a server


def streaming(step: float, tokens: int = 32, slots: int = 99, **more: Any) -> Answers:
    """A server whose steps take `step` seconds for each request that is decoded."""
    lock, open_now, free = threading.Lock(), [0], threading.Semaphore(slots)

    def events() -> Iterator[dict[str, Any]]:
        with free:
            yield from decoded()

    def decoded() -> Iterator[dict[str, Any]]:
        with lock:
            open_now[0] += 1
        for number in range(tokens):
            time.sleep(step * open_now[0])
            ended = number == tokens - 1
            yield {"choices": [{"text": " a", "finish_reason": "length" if ended else None}]}
        yield {"choices": [], **more}
        with lock:
            open_now[0] -= 1

    def answers(call: Call) -> Reply:
        if call.path == "/v1/completions":
            return a_stream(events())
        return {"/v1/models": a_json({"data": [{"id": "m", "owned_by": "vllm"}]})}[call.path]

    return answers


def test_the_steps_of_a_server_are_measured_at_doublings():
    asked: list[int] = []
    with served(streaming(0.004)) as server:
        found = costs.measured(connect(server.engine()), 3, asked.append)
    assert asked == sorted(found.seconds) == [1, 2, 4]
    assert found.seconds[1] >= 0.004
    assert found.cost(1, 4) > 1.5  # four requests have steps four times as long
    assert found.server == "fake, vllm, measured"


def test_a_server_that_drafts_is_refused():
    counted = {"num_draft_tokens": 8, "num_accepted_draft_tokens": 2, "num_spec_steps": 4}
    spoken = {"metrics": {"speculative_decoding": counted}}
    with served(streaming(0.0, **spoken)) as server, pytest.raises(InputError, match="drafts"):
        costs.measured(connect(server.engine()), 1)


def test_a_server_whose_counters_alone_tell_of_drafts_is_refused():
    asked = count(1)

    def counters() -> Reply:
        number = next(asked)
        names = {"drafts": 4, "draft_tokens": 8, "accepted_tokens": 2}
        lines = (f"vllm:spec_decode_num_{name}_total {n * number}" for name, n in names.items())
        return Reply("\n".join(lines).encode(), type="text/plain")

    plain = streaming(0.0)
    with (
        served(lambda call: counters() if call.path == "/metrics" else plain(call)) as server,
        pytest.raises(InputError, match="drafts"),
    ):
        costs.measured(connect(server.engine()), 1)


def test_a_server_that_sends_all_at_once_is_refused():
    with (
        served(streaming(0.0, tokens=2)) as server,
        pytest.raises(InputError, match="three pieces"),
    ):
        costs.measured(connect(server.engine()), 1)


@pytest.mark.parametrize(
    "arrivals", [(2.0, 2.05, 2.1), (2.0, 2.0, 2.0), (0.0, 0.0, 0.0)], ids=["late", "once", "zero"]
)
def test_a_stream_that_a_proxy_holds_back_is_refused(arrivals):
    """Its steps looked almost free, or took 0 s, and the cost was divided by them."""
    record = Record("fast", "vllm", "m", "", "", None, 3, tuple((at, 1) for at in arrivals), 3, "")
    with pytest.raises(InputError, match=r"Engine fast was silent for .* holds them back"):
        costs._step(record)
    assert costs._step(replace(record, arrivals=((1.0, 1), (1.5, 1), (2.0, 1)))) == 0.5


def test_requests_that_wait_for_others_are_no_load():
    """With four slots, eight requests had the steps of four, so a verification looked cheap."""
    with served(streaming(0.002, tokens=16, slots=2)) as server:
        found = costs.measured(connect(server.engine()), 16)
    assert sorted(found.seconds) == [1, 2]


def test_a_step_of_more_requests_costs_no_less():
    odd = Steps("odd", {1: 1.0, 2: 1.5, 4: 1.2, 8: 1.8})
    assert odd.cost(2, 2) == 1.0
    assert odd.cost(1, 4) == 1.5


def test_a_server_is_asked_for_at_most_64_requests_at_once():
    assert costs.asked(10_000) == [1, 2, 4, 8, 16, 32, 64]
    assert costs.asked(5) == [1, 2, 4, 8]


def test_a_stopped_measurement_keeps_what_it_has():
    with served(streaming(0.002)) as server:
        client, asked = connect(server.engine()), list[int]()
        found = costs.measured(client, 8, asked.append, lambda: len(asked) == 2)
        assert sorted(found.seconds) == [1, 2]
        with pytest.raises(InputError, match="Nothing was measured: it was stopped"):
            costs.measured(client, 8, stopped=lambda: True)
