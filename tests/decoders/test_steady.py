"""Rounds that passes in advance settle at temperature 0: what their decoder would have written."""

import pytest
import torch

from decoders import ModelPair, catalog, generate, turn
from decoders.loop import Loop
from decoders.options import Sampling
from tests.decoders.engine.passes.test_foresight import PROMPTS, build_pair, halved, told
from tests.decoders.test_mixtures import Asked, tokens_of
from tests.models import build
from tests.needs import needs_kernels

pytestmark = needs_kernels
GREEDY = catalog["greedy"]()


@pytest.fixture(scope="module")
def pairs():
    """Drafts that are kept now and then, and drafts that are all kept."""
    twins = (halved(build("qwen3", torch.float32)) for _ in range(2))
    return build_pair(), ModelPair(*twins)


@pytest.fixture
def settled(monkeypatch):
    """The rounds that were settled."""
    seen, usual = [], turn.settled

    def noted(*args):
        for entry in usual(*args):
            seen.append(entry)
            yield entry

    monkeypatch.setattr(turn, "settled", noted)
    return seen


def both(pair, method, monkeypatch, prompts=PROMPTS, **options):
    """All of the results, and what they are when decoders write all rounds."""
    options = {"max_new_tokens": 40, "seed": 5, "temperature": 0, **options}

    def all_told():
        """Of a prompt alone, or of a list of prompts as a batch."""
        results = [generate(pair, p, method, **options) for p in prompts]
        return [
            [told(each) for each in found] if isinstance(found, list) else told(found)
            for found in results
        ]

    ours = all_told()
    with monkeypatch.context() as patch:
        patch.setattr(turn, "settled", lambda *args: ())
        return ours, all_told()


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("length", [0, 1, 3, 6])
def test_the_decoder_would_have_written_the_same(pairs, kind, length, settled, monkeypatch):
    method = catalog["speculative"](draft_length=length) if length else GREEDY
    ours, theirs = both(pairs[kind], method, monkeypatch, ignore_eos=True)
    assert ours == theirs
    fates = {trial.fate for entry in settled for trial in entry.trials}
    expected = {"sampled"} if not length else {"accepted", "bonus"}
    if length and not kind:
        expected = {"accepted", "corrected", "rejected"} | ({"discarded"} if length > 1 else set())
    assert expected <= fates
    assert len(settled) > 10


def test_a_text_may_be_stopped_in_any_of_them(pairs, settled, monkeypatch):
    for length in range(1, 14):
        stop = {"stop": lambda request, tokens, length=length: len(tokens) >= length}
        for method in (GREEDY, catalog["speculative"](draft_length=3)):
            settled.clear()
            ours, theirs = both(pairs[0], method, monkeypatch, PROMPTS[:1], **stop)
            assert ours == theirs
            assert len(ours[0][0]) == length
            assert settled or length < 6


@pytest.mark.parametrize("method", [GREEDY, catalog["speculative"](draft_length=3)])
def test_any_token_may_end_a_text(method, settled, monkeypatch):
    """Alone, and in a batch whose other texts go on."""
    pair = build_pair()
    whole = generate(pair, PROMPTS[0], method, max_new_tokens=24, temperature=0).tokens
    for end in dict.fromkeys(whole):
        pair.target.generation_config.eos_token_id = end
        for prompts in (PROMPTS[:1], [PROMPTS]):
            ours, theirs = both(pair, method, monkeypatch, prompts, max_new_tokens=24)
            assert ours == theirs
    assert settled


@pytest.mark.parametrize("role", ["target", "draft"])
def test_logits_that_are_no_numbers_end_a_request_where_they_did(role, settled, monkeypatch):
    """From the token on that makes them, which the passes in advance have fed."""
    for name in ("greedy", "speculative"):
        pair = build_pair()
        options = {"max_new_tokens": 40, "temperature": 0, "ignore_eos": True}
        whole = generate(pair, PROMPTS[0], name, **options).tokens  # the kernels are there now
        seen = {*PROMPTS[0], *whole[:15]}
        late = next(token for token in whole[15:] if token not in seen)
        getattr(pair, role).get_input_embeddings().weight.data[late] = torch.nan
        settled.clear()
        ours, theirs = both(pair, name, monkeypatch, [PROMPTS[:1]], ignore_eos=True)
        assert ours == theirs
        assert settled
        tokens = ours[0][0][0]
        assert tokens == whole[: len(tokens)]
        if role == "target" or name == "speculative":
            assert len(tokens) <= whole.index(late) + 1


def test_others_decide_for_themselves(pairs, settled):
    """Rounds whose draft may change its length, whose rule has other numbers, or in which chance
    decides."""
    for name, settings in (
        ("speculative", {"draft_length": "auto"}),
        ("speculative", {"confidence": 0.1}),
        ("speculative", {"rule": "block"}),
        ("speculative", {"lenience": 0.5}),
        ("speculative", {"draft": "lookup"}),
        ("mtad", {}),
    ):
        method = catalog[name](**settings)
        generate(pairs[0], PROMPTS[0], method, max_new_tokens=30, temperature=0, ignore_eos=True)
    generate(pairs[0], PROMPTS[0], "speculative", max_new_tokens=30, ignore_eos=True)
    assert not settled


def test_requests_of_a_batch_are_settled_one_by_one(pairs, settled, monkeypatch):
    ours, theirs = both(pairs[0], GREEDY, monkeypatch, [PROMPTS], ignore_eos=True)
    assert ours == theirs
    assert len(settled) > 20


def tries(rounds):
    return [[(t.token, t.fate, t.p, t.q, t.u) for t in entry.trials] for entry in rounds]


@pytest.mark.parametrize("steps", range(3))
def test_another_request_may_join_a_decoder_that_rests(pairs, steps, settled):
    """The kernels then make no rounds, and it goes on by the passes that both share."""
    pair = pairs[0]
    engines = {role: model.engine() for role, model in pair.packed.items()}
    turns = [
        Asked("speculative", prompt, 0, None, Sampling(99, temperature=0.0)).turn(pair)
        for prompt in PROMPTS[:2]
    ]
    with Loop(engines) as loop:
        loop.add(turns[0])
        for _ in range(8):
            loop.step()
            if turns[0].rests:
                break
        for _ in range(steps):
            loop.step()
        assert turns[0].rests
        loop.add(turns[1])
        while loop.turns:
            loop.step()
    for each, prompt in zip(turns, PROMPTS, strict=False):
        alone = generate(pair, prompt, "speculative", max_new_tokens=99, temperature=0)
        assert tokens_of(each) == alone.tokens
        assert tries(each.request.rounds) == tries(alone.rounds)
    assert settled
