import pytest

from decoders.distribution import Warping
from decoders.errors import InputError
from decoders.methods.catalog import catalog
from decoders.randomness import SeededSource
from decoders.testing.oracle import decode, output_law
from decoders.testing.situations import Rows, Situation, ancestral, drawn, variation
from decoders.trace import Fate

GREEDY = Warping(temperature=0)
bild = catalog["bild"]
ALIKE = Rows(((0.05, 0.95),))


def run(method, situation, seed=0):
    return decode(method, situation, SeededSource(seed))


@pytest.mark.parametrize("warping", [Warping(), Warping(0.7, 2, 0.9)])
@pytest.mark.parametrize("seed", range(3))
def test_a_fallback_above_1_is_the_target_alone(warping, seed):
    situation = drawn(3, seed, warping=warping, end=frozenset({2}))
    assert (
        variation(output_law(bild(fallback=1.1), situation), ancestral(situation, warping)) < 1e-12
    )
    ours, plain = (run(m, situation, seed) for m in (bild(fallback=1.1), catalog["multinomial"]()))
    assert ours.output == plain.output  # the same draws, too
    assert sum(entry.drafted for entry in ours.rounds) == 0


@pytest.mark.parametrize("fallback", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_rollback_0_at_temperature_0_is_greedy(fallback, seed):
    situation = drawn(4, seed, budget=6, warping=GREEDY, end=frozenset({3}))
    (greedy,) = ancestral(situation, GREEDY)
    assert run(bild(fallback=fallback, rollback=0.0), situation).output == greedy


def test_the_draft_writes_until_it_hesitates_and_that_token_is_not_kept():
    """Sure behind the prompt and behind one more token, unsure behind two."""
    draft = Rows(((0.05, 0.95), (0.05, 0.95), (0.4, 0.6)))
    r = run(bild(), Situation(ALIKE, draft, budget=6, warping=GREEDY))
    assert [t.fate for t in r.rounds[0].trials] == [Fate.ACCEPTED, Fate.ACCEPTED, Fate.BONUS]
    assert [t.fate for t in r.rounds[1].trials] == [Fate.SAMPLED]
    assert r.rounds[1].drafted == 0


def test_hesitation_is_measured_on_the_raw_distribution():
    """At temperature 0 the warped draft is always sure."""
    unsure = Rows(((0.5, 0.5),))
    r = run(bild(), Situation(ALIKE, unsure, warping=GREEDY))
    assert sum(entry.drafted for entry in r.rounds) == 0


@pytest.mark.parametrize(("rollback", "kept"), [(3.0, 4), (2.9, 0)])
def test_the_first_token_that_is_too_unlikely_is_replaced_and_the_rest_dropped(rollback, kept):
    draft = Rows(((0.95, 0.05),))  # writes 0, whose -log p is log 20 = 2.996
    r = run(
        bild(rollback=rollback, draft_length=4), Situation(ALIKE, draft, budget=5, warping=GREEDY)
    )
    first = r.rounds[0].trials
    assert sum(t.fate == Fate.ACCEPTED for t in first) == kept
    assert first[0].p == pytest.approx(0.05)
    if not kept:
        assert [t.fate for t in first] == [Fate.REJECTED, *[Fate.DISCARDED] * 3, Fate.CORRECTED]
        assert r.output[0] == 1


def test_a_token_the_target_rules_out_is_never_kept():
    only_1 = Rows(((0.0, 1.0),))
    draft = Rows(((0.95, 0.05),))
    assert run(bild(rollback=100.0), Situation(only_1, draft, warping=GREEDY)).output == (1, 1, 1)


def test_gamma_bounds_the_draft_and_the_tail_is_verified_too():
    r = run(bild(draft_length=3), Situation(ALIKE, ALIKE, budget=8, warping=GREEDY))
    assert [entry.drafted for entry in r.rounds] == [3, 3]
    assert [entry.accepted for entry in r.rounds] == [3, 3]


@pytest.mark.parametrize(
    "settings", [{"fallback": -0.1}, {"rollback": -1}, {"draft_length": 0}, {"fallback": "high"}]
)
def test_settings_out_of_range_are_refused(settings):
    (name,) = settings
    with pytest.raises(InputError, match=f"bild: {name} must be"):
        bild(**settings)
