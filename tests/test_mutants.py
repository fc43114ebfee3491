"""The table of mistakes that `python -m tests.mutants` plants: each can be planted and tested."""

import pytest

from tests.mutants import ROOT, mutants, place

MUTANTS = mutants()


def test_there_are_at_least_sixty_with_names_of_their_own():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_has_a_place_and_tests(mutant):
    assert place(mutant, ROOT)
    assert mutant.wrong != mutant.right
    for name in mutant.tests.split():
        assert (ROOT / "tests" / name.partition("::")[0]).exists()
