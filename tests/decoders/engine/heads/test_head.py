"""A head drafts for every decoder, and what it proposes is made of the right states, always."""

import random
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from decoders import InputError, ModelPair, catalog, generate, hf, load_pair, read
from decoders.engine.heads.head import Head
from decoders.engine.loading.heads import load_head
from decoders.engine.protocols import Features, Model
from decoders.loop import Turn
from decoders.tree import TokenTree
from tests.decoders.engine.loading.test_heads import LAYER, OWN, TOP, eagle3
from tests.heads import Slow, drafts_for, rms, saved
from tests.laws import has_the_targets_law
from tests.models import VOCABULARY, build, build_tokenizer
from tests.needs import needs_kernels
from tests.pairwise import EVERYWHERE, part

LAYERS = 2, 3, 4
PROMPTS = [5, 6, 7, 8], [3], list(range(20, 40))
TAKING_DRAFTS = [name for name, method in catalog.items() if method.uses_draft]
FEW = "speculative", "dsbd", "speculative_beam_search"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target and a head for it, as somebody would have downloaded them."""
    folder = tmp_path_factory.mktemp("models")
    build(num_hidden_layers=7).save_pretrained(folder / "target")
    build_tokenizer().save_pretrained(folder / "target")
    saved(folder / "head", LAYER | TOP, eagle3())
    return str(folder / "target"), str(folder / "head")


@pytest.fixture(scope="module")
def pair(folders):
    return load_pair(*folders, dtype="float64")


def test_a_pair_is_loaded_with_a_head_where_it_takes_a_draft(pair):
    assert isinstance(pair.draft, Head)
    assert isinstance(pair.draft, Model)
    assert pair.draft.reads == LAYERS
    assert pair.draft.weight_bytes > 0
    # keys and values: 2 heads of 4; a state; float64
    assert pair.packed["draft"].row_bytes == (2 * 2 * 4 + 16) * 8


def test_a_head_alone_is_no_target(folders):
    with pytest.raises(InputError, match="is a head, which drafts for a target; name the target"):
        load_pair(folders[1])


@pytest.mark.parametrize("name", TAKING_DRAFTS if EVERYWHERE else FEW)
def test_every_decoder_takes_it(pair, name):
    """In a batch, with prompts in chunks, each request gets the tokens that it gets alone."""
    drafts_for(pair, name, PROMPTS)


@pytest.mark.parametrize(("name", "settings"), [
    ("speculative", {"draft_length": 2}),
    pytest.param("block", {"draft_length": 2}, marks=pytest.mark.slow),
    ("traversal", {"expansion": (2, 1)}),
    pytest.param("mcss", {"expansion": (2,)}, marks=pytest.mark.slow),
    pytest.param("best_first", {"nodes": 3, "depth": 2}, marks=pytest.mark.slow),
])  # fmt: skip
def test_the_law_on_a_whole_model(pair, name, settings):
    has_the_targets_law(pair, catalog[name](**settings))


@pytest.mark.parametrize(("drafted", "seen"), [(False, 7), (True, 3)])
def test_a_text_is_read_as_the_first_token_of_a_draft_or_as_a_draft_is_drawn(pair, drafted, seen):
    """q was asked of a head that had been told nothing of the text; and a judge of drafts took q
    made of the target's states, which the head had not had."""
    text, weights = [9, 10, 11], eagle3()
    places = read(pair, PROMPTS[0], text, drafted=drafted)
    tree = TokenTree([*PROMPTS[0], *text])
    for i, row in enumerate(places.q):
        expected = slow(weights, pair.target, tree, len(PROMPTS[0]) - 1 + i, set(range(seen)))
        torch.testing.assert_close(row, expected.softmax(-1), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "length"),  # with beams few drafts are decided upon
    part([("specinfer", 30), ("speculative", 30), ("dsbd", 60)], 3),
)
def test_q_is_what_the_head_says_there_through_whole_texts(pair, name, length):
    """Round after round: kept tokens are made of the target's states, drafts of the head's own.

    Readings of tips, made of the head's own states, once outlived their round."""
    weights, rows, checked = eagle3(), {}, 0  # siblings have one row
    result = generate(pair, PROMPTS[0], name, max_new_tokens=length, seed=4)
    parents: dict[int, tuple[int, int]] = {}
    for entry in result.rounds:
        tried = {trial.node for trial in entry.trials}
        for trial in entry.trials:
            parents.setdefault(trial.node, (trial.parent, trial.token))
        for trial in entry.trials:
            if trial.q is None or trial.fate not in ("accepted", "rejected"):
                continue
            path, at = [], trial.parent
            while at in parents:
                path.append(at)
                at = parents[at][0]
            text = [*PROMPTS[0], *(parents[node][1] for node in reversed(path))]
            own = sum(node in tried for node in path)  # drafted in this round
            if (place := (*text, own)) not in rows:
                seen = set(range(len(text) - own - 1))
                row = slow(weights, pair.target, TokenTree(text), len(text) - 1, seen)
                rows[place] = row.softmax(-1)
            assert trial.q == pytest.approx(rows[place][trial.token].item(), abs=1e-9)
            checked += own > 0
    assert checked > 2


@needs_kernels
@pytest.mark.parametrize(
    "warping", part([{"temperature": 0}, {}, {"temperature": 0.7, "top_p": 0.9}])
)
def test_kernels_draw_a_draft_in_one_call(warping, tmp_path, monkeypatch):
    """They give the tokens, chances and counts of drawing one by one, alone and in a batch.

    A head's program was made again for the second text: copies of its weights counted as changes.
    """
    build(num_hidden_layers=7).bfloat16().save_pretrained(tmp_path / "target")
    build_tokenizer().save_pretrained(tmp_path / "target")
    weights = {name: weight.bfloat16() for name, weight in eagle3().items() if name != "d2t"}
    saved(tmp_path / "head", LAYER | TOP, weights | {"d2t": eagle3()["d2t"]})
    pair, calls = load_pair(tmp_path / "target", tmp_path / "head", dtype="float32"), []
    generate(pair, PROMPTS[0], "speculative", max_new_tokens=2)
    program = pair.draft.forward.serving(1)
    passes = program.passes

    def counted(*given):
        calls.append(passes(*given))
        return calls[-1]

    program.passes = counted

    def told(prompts):
        results = generate(pair, prompts, "speculative", max_new_tokens=24, seed=3, **warping)
        rounds = [entry for result in results for entry in result.rounds]
        trials = [(t.token, t.fate, t.p, t.q, t.u) for entry in rounds for t in entry.trials]
        counts = [(r.metrics.draft_calls, r.metrics.draft_passes) for r in results]
        return [r.tokens for r in results], trials, counts

    alone, together = told(PROMPTS[2:]), told(PROMPTS)
    assert max(calls) == catalog["speculative"]().draft_length
    assert len(calls) < sum(calls)
    calls.clear()
    monkeypatch.setattr(Turn, "chain", None)
    assert (alone, together) == (told(PROMPTS[2:]), told(PROMPTS))
    assert not calls


def test_the_prompt_that_is_read_first_is_no_call_that_wrote_a_token(pair):
    """It made heads look 5% less efficient than they are."""
    result = generate(pair, PROMPTS[0], "speculative", max_new_tokens=12, temperature=0)
    assert result.metrics.target_calls == len(result.rounds)
    assert result.metrics.prefill_calls == 1


def test_a_head_of_another_target_is_refused(pair, folders):
    other = build(num_hidden_layers=7, dtype=torch.float32)
    with pytest.raises(InputError, match="for a target of another width, dtype or device"):
        ModelPair(other, pair.draft)
    with pytest.raises(InputError, match="leave draft_device out"):
        load_pair(*folders, draft_device="cpu")


def test_it_drafts_inside_of_generate(pair):
    ids = torch.tensor([PROMPTS[0]])
    how = {"max_new_tokens": 10, "do_sample": False}
    found = pair.target.generate(ids, custom_generate=hf("speculative", draft=pair.draft), **how)
    assert torch.equal(found, pair.target.generate(ids, **how))


# ---- which states rows are made of


def states_of(target, text):
    with torch.inference_mode():
        found = target(torch.tensor([text]), use_cache=False, output_hidden_states=True)
    return [found.hidden_states[layer][0] for layer in LAYERS]


def slow(weights, target, tree, node, seen):
    """The logits after a node, row by row.

    A row's state is the target's where the target has seen the token before, else the head's own
    after it.
    """
    layer = Slow({k[9:]: v for k, v in weights.items() if k.startswith("midlayer.")}, True)
    path = tree.lineage(node)
    states, h = states_of(target, [tree.tokens[n] for n in path]), None
    for i, child in enumerate(path[1:]):
        state = h
        if path[i] in seen:
            state = weights["fc.weight"] @ torch.cat([part[i] for part in states])
        h = layer.row(weights["embed_tokens.weight"][tree.tokens[child]], state)
    logits = weights["lm_head.weight"] @ rms(h, weights["norm.weight"])
    every = torch.full((VOCABULARY,), -torch.inf, dtype=torch.float64)
    every[torch.arange(OWN) + weights["d2t"]] = logits
    return every


def rounds_agree(target, head, weights, rounds=4):
    """Trees of drafts over several rounds, in a batch of two requests.

    In each round the target sees the tip and all drafts, and keeps a part.
    """
    draw, passes = random.Random(1), head.engine(40)
    trees = [TokenTree([5, 6, 7, 8]), TokenTree(list(range(20, 33)))]
    seen = {tree: set() for tree in trees}

    def read(tree, nodes):
        for node in nodes:
            text = [tree.tokens[n] for n in tree.lineage(node)]
            states = tuple(state[-1:] for state in states_of(target, text))
            with torch.inference_mode():
                passes.learn(tree, Features([node], states))
            seen[tree].add(node)

    for tree in trees:
        passes.admit(tree, 60)
        read(tree, tree.trunk[:-1])
    for _ in range(rounds):
        layers = {tree: [tree.trunk[-1]] for tree in trees}
        drafted = {tree: [tree.trunk[-1]] for tree in trees}
        for _ in range(3):
            answers = passes.run([(tree, layers[tree]) for tree in trees])
            for tree, answer in zip(trees, answers, strict=True):
                for node, row in zip(layers[tree], answer.logits, strict=True):
                    expected = slow(weights, target, tree, node, seen[tree])
                    torch.testing.assert_close(row, expected, rtol=0, atol=1e-9)
                layers[tree] = [
                    tree.add(node, draw.randrange(VOCABULARY))
                    for node in layers[tree]
                    for _ in range(draw.randrange(1, 3))
                ][:3]
                drafted[tree] += layers[tree]
        for tree in trees:
            read(tree, drafted[tree])
            kept = draw.choice(drafted[tree][1:])
            tree.keep([tree.add(kept, draw.randrange(VOCABULARY))])
    for tree in trees:
        passes.release(tree)


@pytest.fixture(scope="module")
def made(folders):
    target = build(num_hidden_layers=7)
    return target, load_head(folders[1], target), eagle3()


def test_kept_tokens_are_made_of_the_targets_states_and_drafts_of_its_own(made):
    rounds_agree(*made)


class ThreadsSeen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: set[int] = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.counts.add(torch.get_num_threads())
        return operation(*args, **(kwargs or {}))


def test_its_logits_are_spread_over_the_vocabulary_in_one_thread():
    """OpenMP's threads waited in loops after each draft, so that those that share passes came late
    and rested for hundreds of passes: two threads decoded no faster than one."""
    before, some = torch.get_num_threads(), torch.arange(0, 49_152, 6)
    head, logits = SimpleNamespace(ids=some, vocabulary=49_152), torch.zeros(1, len(some))
    torch.set_num_threads(2)
    try:
        with ThreadsSeen() as threads:
            every = Head.over_vocabulary(head, logits)
    finally:
        torch.set_num_threads(before)
    assert threads.counts == {1}
    assert every.isfinite().sum() == len(some)
