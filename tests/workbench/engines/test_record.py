"""Counts of draft tokens by one convention."""

import pytest

from decoders import InputError
from tests.workbench.engines.served import a_stream, chunk, served, usage, vllm
from workbench.engines.client import connect
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


def test_vllm_tells_each_step():
    told = usage(8, metrics={"speculative_decoding": DETAILED})
    answers = vllm(lambda call: a_stream([chunk("a", [1], finish_reason="length"), told]))
    with served(answers) as server:
        found = connect(server.engine()).ask(Query((1,), 8)).speculation
    assert found == Speculation(9, 4, 3, ((3, 0), (3, 3), (3, 1)))
    assert found.length == pytest.approx(1 + 4 / 3)


@pytest.mark.parametrize(
    "counts",
    [
        (3, 4),
        (3, -1),
        (3, 2, 0),
        (3, 2, 1, ((3, 1),)),
        (3, 2, 1, ((1, 2),)),
    ],
)
def test_counts_that_contradict_each_other_are_refused(counts):
    with pytest.raises(InputError, match="contradict"):
        Speculation(*counts)
