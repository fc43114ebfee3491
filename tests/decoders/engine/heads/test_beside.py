"""A head beside a draft model: each decoder says which of the two drafts."""

import itertools
import shutil

import pytest

from decoders import InputError, ModelPair, catalog, generate, hf, load_pair, read
from decoders.engine.heads.head import Head
from decoders.generate import Batching, Sampling, Task, prepare
from decoders.loop import Loop
from tests.laws import has_the_targets_law
from tests.models import build, folder_of_three
from tests.pairwise import part

PROMPTS = [5, 6, 7, 8], [3], list(range(20, 40))
BY_HEAD = [
    ("speculative", {"draft": "head"}),
    ("speculative", {"draft": "head", "draft_length": 2, "gate": 0.2}),
    ("block", {"draft": "head"}),
    ("match", {"draft": "head"}),
    ("speculative", {"draft": "head", "rule": "cascade"}),
    ("best_first", {"by": "head"}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_of_three(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def pair(folder):
    return load_pair(folder, dtype="float64")


@pytest.fixture(scope="module")
def headed(folder):
    """The same head in the place of the draft."""
    return load_pair(folder, "head", dtype="float64")


def test_a_folder_with_a_head_gives_all_three(pair, headed, folder):
    assert list(pair.packed) == ["target", "draft", "head"]
    assert isinstance(pair.head, Head)
    assert not isinstance(pair.draft, Head)
    assert headed.head is headed.draft
    assert load_pair(folder, "draft").head is None  # who names a draft gets that
    assert load_pair(folder, "draft", head="head").head.reads == pair.head.reads


def drafted(results):
    return [[entry.drafted for entry in result.rounds] for result in results]


@pytest.mark.parametrize(("name", "settings"), part(BY_HEAD))
def test_it_drafts_what_it_drafts_in_the_place_of_the_draft(pair, headed, name, settings):
    method = catalog[name](**settings)
    alone = {k: v for k, v in settings.items() if v != "head"}
    for options in ({"temperature": 0.0}, {"seed": 3, "top_k": 20}):
        found = generate(pair, PROMPTS, method, max_new_tokens=16, **options)
        same = generate(headed, PROMPTS, catalog[name](**alone), max_new_tokens=16, **options)
        assert [r.tokens for r in found] == [r.tokens for r in same]
        assert drafted(found) == drafted(same)
        assert all(r.metrics.draft_calls for r in found)
        model = generate(pair, PROMPTS, catalog[name](**alone), max_new_tokens=16, **options)
        assert [r.rounds[0].trials for r in model] != [r.rounds[0].trials for r in found]


def test_the_law_with_a_head_beside_a_draft(pair):
    has_the_targets_law(pair, catalog["speculative"](draft_length=2, draft="head"))


def turn_of(pair, prompt, method, seed):
    sampling = Sampling(max_new_tokens=12, seed=seed)
    clock = itertools.count().__next__
    (turn,), _ = prepare(Task.read(pair, prompt, method, sampling, Batching(), clock=clock))
    return turn


def test_model_head_and_copies_share_the_target_s_passes(pair):
    methods = [
        catalog["speculative"](), catalog["speculative"](draft="head"), catalog["lookup"](),
        catalog["best_first"](by="head", nodes=4), catalog["greedy"](),
    ]  # fmt: skip
    turns = [turn_of(pair, PROMPTS[i % 3], m, i) for i, m in enumerate(methods)]
    engines = {role: model.engine() for role, model in pair.packed.items()}
    with Loop(engines) as loop:
        for turn in turns:
            loop.add(turn)
        loop.step()
        arenas = [engine.arenas.each[0] for engine in engines.values()]
        while loop.turns:
            loop.step()
    assert all(arena.take(arena.rows) is not None for arena in arenas)  # all rows came back
    for i, (turn, method) in enumerate(zip(turns, methods, strict=True)):
        found = turn.request.tree.new_tokens(turn.request.answer)
        assert found == generate(pair, PROMPTS[i % 3], method, max_new_tokens=12, seed=i).tokens


def test_a_head_that_is_not_there(pair, folder, tmp_path):
    alone = ModelPair(pair.target, pair.draft)
    with pytest.raises(InputError, match=r"^speculative needs a head, and there is none"):
        generate(alone, [3], catalog["speculative"](draft="head"))
    with pytest.raises(InputError, match="This pair has no head to read"):
        read(alone, [3], draft="head")
    with pytest.raises(InputError, match="is no head; name it as the draft"):
        load_pair(folder, head="draft")
    with pytest.raises(InputError, match=r"needs a head of the target, as load_pair"):
        hf(catalog["speculative"](draft="head"), draft=pair.draft)
    shutil.copytree(folder / "target", tmp_path / "other")
    build(num_hidden_layers=7, hidden_size=48).save_pretrained(tmp_path / "other")
    with pytest.raises(InputError, match="head"):
        load_pair(tmp_path / "other", head=folder / "head")


def test_a_heads_folder_that_does_not_fit_does_not_take_the_pair_away(folder, tmp_path, caplog):
    """It may be of another target that was in this folder before; nobody has asked for it."""
    shutil.copytree(folder, tmp_path / "pair")
    build(num_hidden_layers=7, hidden_size=48).save_pretrained(tmp_path / "pair" / "target")
    pair = load_pair(tmp_path / "pair")
    assert list(pair.packed) == ["target", "draft"]
    assert pair.head is None
    assert "The pair has no head: " in caplog.text
    with pytest.raises(InputError, match="head"):
        load_pair(tmp_path / "pair", head="head")
    with pytest.raises(InputError, match="takes the place of the draft; name it there"):
        load_pair(folder, head="mtp")
