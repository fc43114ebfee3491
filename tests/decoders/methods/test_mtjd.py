import itertools

import pytest

from decoders.distribution import Warping
from decoders.errors import InputError
from decoders.methods.catalog import catalog
from decoders.randomness import SeededSource
from decoders.testing.oracle import decode, output_law
from decoders.testing.situations import (
    Rows,
    Situation,
    ancestral,
    drawn,
    log_likelihood,
    variation,
)
from decoders.trace import Fate

GREEDY = Warping(temperature=0)
mtjd = catalog["mtjd"]


def run(method, situation):
    return decode(method, situation, SeededSource(0))


def likeliest(situation) -> tuple[int, ...]:
    """The likeliest of all outputs: those that end, and those as long as the budget."""
    V = range(situation.target.V)
    outputs = [o for n in range(1, situation.budget + 1) for o in itertools.product(V, repeat=n)]
    whole = [
        o
        for o in outputs
        if not any(t in situation.end for t in o[:-1])
        and (len(o) == situation.budget or o[-1] in situation.end)
    ]
    return max(whole, key=lambda o: log_likelihood(situation, (*situation.prompt, *o)))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("end", [frozenset(), frozenset({2})])
def test_exact_over_the_whole_length_is_the_likeliest_sequence(seed, end):
    situation = drawn(3, seed, budget=4, end=end)
    assert run(mtjd(block_length=4, exact=True), situation).output == likeliest(situation)


def test_so_is_a_beam_search_wide_enough_and_not_a_narrow_one():
    situations = [drawn(3, seed, budget=4) for seed in range(12)]
    assert all(run(mtjd(beams=64), s).output == likeliest(s) for s in situations)
    assert not all(run(mtjd(beams=1), s).output == likeliest(s) for s in situations)


@pytest.mark.parametrize("settings", [{"beams": 8}, {"exact": True}, {"beams": 1}])
@pytest.mark.parametrize("end", [frozenset(), frozenset({2})])
def test_one_token_at_a_time_is_greedy(settings, end):
    for seed in range(5):
        situation = drawn(4, seed, budget=5, end=end)
        (greedy,) = ancestral(situation, GREEDY)
        assert run(mtjd(block_length=1, **settings), situation).output == greedy


def test_blocks_are_committed_one_after_the_other():
    situation = drawn(4, 3, budget=5)
    r = run(mtjd(block_length=2, exact=True), situation)
    assert [len(entry.nodes) for entry in r.rounds] == [2, 2, 1]
    first = max(
        itertools.product(range(4), repeat=2),
        key=lambda o: log_likelihood(situation, (*situation.prompt, *o)),
    )
    assert r.output[:2] == first
    assert {t.fate for entry in r.rounds for t in entry.trials} == {Fate.SEARCHED}
    total = sum(t.log_p for entry in r.rounds for t in entry.trials)
    assert total == pytest.approx(log_likelihood(situation, (*situation.prompt, *r.output)))


def test_sampling_with_one_beam_is_ancestral_sampling():
    for seed, warping in enumerate([Warping(), Warping(0.7, 2)]):
        situation = drawn(3, seed, warping=warping)
        law = output_law(mtjd(block_length=2, beams=1, form="sample"), situation)
        assert variation(law, ancestral(situation, warping)) < 1e-12


def test_sampling_with_more_beams_keeps_the_likelier_of_them():
    """The sampling form commits the best of W draws: on average it is likelier than one draw."""
    situation = drawn(3, 1, budget=2)

    def mean(beams):
        law = output_law(mtjd(block_length=2, beams=beams, form="sample"), situation)
        return sum(p * log_likelihood(situation, (*situation.prompt, *o)) for o, p in law.items())

    assert mean(2) > mean(1) + 0.1


def test_search_ignores_the_warping():
    outputs = {
        run(mtjd(), drawn(4, 2, budget=5, warping=w)).output
        for w in (Warping(), Warping(0.3, 1), GREEDY)
    }
    assert len(outputs) == 1


def test_too_many_sequences_are_refused_before_any_work():
    with pytest.raises(
        InputError,
        match=r"exact would try 10\*\*6 sequences, more than 100000; take a smaller block",
    ):
        mtjd(block_length=6, exact=True).refuse(vocabulary=10, budget=64)
    mtjd(block_length=64, exact=True).refuse(vocabulary=10, budget=2)
    # the budget counts
    assert run(mtjd(block_length=64, exact=True), drawn(10, 0, budget=2)).output


def test_exact_sampling_is_refused():
    with pytest.raises(InputError, match="exact needs form='search'"):
        mtjd(exact=True, form="sample")


def test_ties_go_to_the_lower_token():
    tie = Rows(((0.4, 0.4, 0.2),))
    assert run(mtjd(), Situation(tie, tie, budget=3)).output == (0, 0, 0)
