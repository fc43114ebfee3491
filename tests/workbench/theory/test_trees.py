"""Rules on small trees: exact, and never above the most of any lossless rule."""

from types import SimpleNamespace

import pytest

from workbench.theory.rules import RULES, TREES, enumerated, kept_figure, now


def values(**changes):
    return SimpleNamespace(**{f.name: f.value for f in RULES.fields} | changes)


@pytest.mark.parametrize("rule", TREES)
def test_every_rule_of_trees_is_exact_and_below_the_most(rule):
    for v in (values(rule=rule, gamma=1), values(rule=rule, gamma=3, V=3)):
        outcome = enumerated(v)
        assert outcome.distance < 1e-9
        assert sum(outcome.chances) <= outcome.together + 1e-9
        assert all(a <= b + 1e-9 for a, b in zip(outcome.chances, outcome.most, strict=True))
        assert f"at most **{outcome.together:.3f}**" in now(v)
        assert len(kept_figure(outcome).data[0].x) == len(outcome.chances) == 1
    assert "two layers of two tokens" in now(v)


def test_two_paths_reach_the_most_where_multi_path_block_verification_is_optimal():
    """And SpecInfer's rule does not: the linear program is no bound of what rules happen to do."""
    two = enumerated(values(rule="multipath", gamma=2))
    assert sum(two.chances) == pytest.approx(two.together)
    tree = enumerated(values(rule="specinfer", gamma=1))
    assert sum(tree.chances) < tree.together - 0.01
