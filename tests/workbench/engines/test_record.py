"""Counts of draft tokens by one convention, and counters of a whole server."""

import pytest

from decoders import InputError
from tests.workbench.engines.served import Reply, a_stream, chunk, served, usage, vllm
from workbench.engines.counters import between, read
from workbench.engines.probe import connect
from workbench.engines.record import Query, Speculation

DETAILED = {
    "num_draft_tokens": 9,
    "num_accepted_draft_tokens": 4,
    "num_spec_steps": 3,
    "acceptance_histogram": [1, 1, 0, 1],
    "mean_acceptance_length": 2.33,
    "per_step_accepted": [0, 3, 1],
    "per_step_drafted": [3, 3, 3],
}


def metrics(steps, drafted, accepted, prefix="vllm:"):
    return "\n".join(
        [
            "# HELP vllm:spec_decode_num_drafts_total Number of drafts.",
            f'{prefix}spec_decode_num_drafts_total{{engine="0"}} {steps}',
            f'{prefix}spec_decode_num_drafts_total{{engine="1"}} {steps}.0',
            f"{prefix}spec_decode_num_draft_tokens_total {drafted}",
            f"{prefix}spec_decode_num_accepted_tokens_total {accepted}",
            f"{prefix}spec_decode_num_accepted_tokens_per_pos_total 77",
            "",
        ]
    )


def test_vllm_tells_each_step():
    told = usage(8, metrics={"speculative_decoding": DETAILED})
    answers = vllm(lambda call: a_stream([chunk("a", [1], finish_reason="length"), told]))
    with served(answers) as server:
        found = connect(server.engine()).ask(Query((1,), 8)).speculation
    assert found == Speculation(9, 4, 3, (1, 1, 0, 1), ((3, 0), (3, 3), (3, 1)))
    assert found.length == pytest.approx(1 + 4 / 3)


def test_counters_are_summed_over_engines_and_told_apart_by_prefix():
    found = read(metrics(5, 30, 12), "vllm:")
    assert found == {"steps": 10, "drafted": 30, "accepted": 12}
    assert read(metrics(5, 30, 12), "llamacpp:") is None
    assert read("", "vllm:") is None


def test_what_is_counted_meanwhile_is_the_server_s():
    before, after = read(metrics(1, 6, 2), "vllm:"), read(metrics(3, 18, 7), "vllm:")
    assert between(before, after) == Speculation(12, 5, 4, of="server")
    assert between(before, before) is None
    assert between(after, before) is None
    assert between(None, after) is None


@pytest.mark.parametrize(
    ("after", "told"), [((3, 18, 7), Speculation(12, 5, 4, of="server")), ((2, 7, 9), None)]
)
def test_counters_before_and_after_serve_an_answer_that_tells_nothing(after, told):
    """Not if they contradict each other: once that ended a canary after all its draws."""
    turns = iter([(1, 6, 2), after])

    def answers(call):
        if call.path == "/metrics":
            return Reply(metrics(*next(turns)).encode(), type="text/plain")
        return vllm(lambda _: a_stream([chunk("a", [1], finish_reason="length")]))(call)

    with served(answers) as server:
        client = connect(server.engine())
        assert client.ask(Query((1,), 8)).speculation is None
        assert client.ask(Query((1,), 8), alone=True).speculation == told
    assert next(turns, None) is None


def test_counters_that_are_none_are_left_out():
    def answers(call):
        if call.path == "/metrics":
            return Reply(b"vllm:spec_decode_num_drafts_total 1e+e\n\xff")
        return vllm(lambda _: a_stream([chunk("a", [1], finish_reason="length")]))(call)

    with served(answers) as server:
        assert connect(server.engine()).ask(Query((1,), 8), alone=True).speculation is None
    with pytest.raises(InputError, match="is no number"):
        read(metrics("1e+e", 1, 1), "vllm:")


@pytest.mark.parametrize(
    "counts",
    [
        (3, 4),
        (3, -1),
        (3, 2, 0),
        (3, 2, 1, (1, 1)),
        (3, 2, 2, (1, 1)),
        (3, 2, 1, (), ((3, 1),)),
        (3, 2, 1, (), ((1, 2),)),
    ],
)
def test_counts_that_contradict_each_other_are_refused(counts):
    with pytest.raises(InputError, match="contradict"):
        Speculation(*counts)
