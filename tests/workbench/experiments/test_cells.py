"""Cells and blocks: the units that run together, and the parts of an id."""

from dataclasses import replace

import pytest

from workbench.experiments.cells import Cell, blocks, experiment_id
from workbench.experiments.plan import Plan, Sweep, parse, restricted
from workbench.experiments.sets import Item, ScoredSet
from workbench.models.presets import PairChoice

SET = ScoredSet("stories", tuple(Item({"prompt": f"prompt {i}"}, f"line {i}") for i in range(5)))
FACTS = {PairChoice(): {"target": "a", "dtype": "float32", "device": "cpu"}}
DECODERS = '[[part]]\ndecoders = ["speculative", "mtad"]\n'


def spelled(text: str, sets=None, facts=None, code="1"):
    return blocks(
        parse(text, "a.toml"), sets or {"stories": SET, "refrains": SET}, facts or FACTS, code
    )


def cells_of(part: Sweep) -> list[Cell]:
    one = replace(part, pairs=part.pairs[:1])
    sets = dict.fromkeys(part.prompts, SET)
    found = blocks(Plan("a", "a", (one,)), sets, {pair: {} for pair in one.pairs}, "1")
    return [cell for block in found for cell in block.cells]


def test_what_is_timed_shares_a_block_with_greedy_and_what_is_not_stands_alone():
    (timed,) = spelled(DECODERS)
    assert [c.method.name for c in timed.cells] == ["greedy", "speculative", "mtad"]
    assert [len(b.cells) for b in spelled(f"{DECODERS}timed = false")] == [1, 1]
    assert timed.items == {i: (i,) for i in range(5)}


@pytest.mark.parametrize("changed", [
    {"code": "2"},
    {"facts": {PairChoice(): {**FACTS[PairChoice()], "target": "b"}}},
    {"sets": {"stories": replace(SET, items=SET.items[1:])}},
    {"sets": {"stories": replace(SET, template="User: {prompt}")}},
    {"text": f"{DECODERS}max_new_tokens = 65"},
    {"text": f"{DECODERS}top_p = 0.9"},
    {"text": f"{DECODERS}top_n_sigma = 1.5"},
    {"text": f"{DECODERS}seeds = 1"},
    {"text": f"{DECODERS}ignore_eos = true"},
    {"text": '[[part]]\ndecoders = [{name = "speculative", draft_length = 3}, "mtad"]\n'},
])  # fmt: skip
def test_whatever_can_change_an_answer_changes_the_ids(changed):
    before, after = spelled(DECODERS), spelled(changed.pop("text", DECODERS), **changed)
    assert not set(before[0].ids) & set(after[0].ids)
    assert experiment_id(before) != experiment_id(after)


def test_a_limit_changes_no_cell_of_single_prompts_so_that_rows_are_used_again():
    plan = parse(DECODERS, "a.toml")
    few = blocks(restricted(plan, None, 2), {"stories": SET}, FACTS, "1")
    assert few[0].ids == spelled(DECODERS)[0].ids
    assert len(few[0].items) == 2
    assert experiment_id(few) != experiment_id(spelled(DECODERS))


def test_a_timed_cell_is_another_in_other_company_and_a_quality_cell_is_the_same():
    alone = '[[part]]\ndecoders = ["speculative"]\n'
    assert set(spelled(DECODERS)[0].ids) & set(spelled(alone)[0].ids) == set()
    quality = [
        {i for b in spelled(f"{text}timed = false") for i in b.ids} for text in (DECODERS, alone)
    ]
    assert quality[1] < quality[0]


def test_another_head_changes_the_cells_that_it_drafts_for_and_no_others():
    """A head that was trained again was given the figures of the one before."""
    heads = '{name = "speculative", draft = "head"}, {name = "best_first", by = "head"}'
    text = f'[[part]]\ntimed = false\ndecoders = ["speculative", {heads}]\n'
    ids = []
    for head in ("a", "b"):
        facts = {PairChoice(): {**FACTS[PairChoice()], "head": head}}
        ids.append([block.cells and block.id for block in spelled(text, facts=facts)])
    assert [one == other for one, other in zip(*ids, strict=True)] == [True, False, False]
