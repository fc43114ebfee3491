"""Reading a text: p and q at every place are those of plain passes over the whole text.

They are also those that decoders act on."""

from dataclasses import asdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import RepetitionPenaltyLogitsProcessor

import decoders
from decoders import InputError, ModelError, ModelPair, Warping, generate, read
from decoders.distribution import warp
from decoders.trace import DRAFTED
from tests.models import VOCABULARY, build, build_pair, build_tokenizer, plain_logits
from tests.pairwise import pairwise

WARPINGS = [
    Warping(), Warping(0), Warping(0.6, 7), Warping(1.4, 0, 0.8), Warping(0.9, 0, 1.0, 0.3, 2.0),
]  # fmt: skip
TEXT = [5, 6, 7, 5, 6, 9, 11, 5]


@pytest.fixture(scope="module")
def pair():
    return build_pair(tokenizer=build_tokenizer())


@pytest.fixture(scope="module")
def two_tokenizers():
    """A draft with other words and 24 positions."""
    target, draft = build(), build(seed=1, max_position_embeddings=24)
    tokenizers = build_tokenizer(("th", "he", "the")), build_tokenizer(("t", "qu", "el"))
    return ModelPair(target, draft, *tokenizers)


def as_options(warping):
    return asdict(warping)


def plain(model, prompt, text):
    return torch.stack([plain_logits(model, [*prompt, *text[:i]]) for i in range(len(text) + 1)])


@pytest.mark.parametrize("warping", WARPINGS, ids=repr)
def test_every_place_is_that_of_plain_passes(pair, warping):
    found = read(pair, [3, 4], TEXT, **as_options(warping))
    rows = [plain(model, [3, 4], TEXT) for model in (pair.target, pair.draft)]
    assert (found.prompt_tokens, found.tokens) == ([3, 4], TEXT)
    torch.testing.assert_close(found.logits, rows[0])
    torch.testing.assert_close(found.log_p, rows[0].log_softmax(-1))
    torch.testing.assert_close(found.p, warp(rows[0], warping))
    torch.testing.assert_close(found.q, warp(rows[1], warping))


@settings(max_examples=20, deadline=None)
@given(texts=st.lists(st.lists(st.integers(3, 6), max_size=5), min_size=1, max_size=6))
def test_several_texts_are_read_as_each_alone(pair, texts):
    """They share a tree, whatever they have in common."""
    for text, found in zip(texts, read(pair, [9, 8], texts, temperature=0.7), strict=True):
        alone = read(pair, [9, 8], text, temperature=0.7)
        assert found.tokens == text
        torch.testing.assert_close(found.p, alone.p)
        torch.testing.assert_close(found.q, alone.q)
        torch.testing.assert_close(found.log_p, alone.log_p)


def test_a_draft_with_another_tokenizer_reads_its_own_tokens(two_tokenizers):
    """Against passes over the whole text in the draft's own tokens.

    After its last position it proposes all shared tokens alike."""
    translation = two_tokenizers.packed["draft"].translation
    prompt = two_tokenizers.tokenizer.convert_tokens_to_ids(list("the"))
    words = ["the", "a", "he", "b", *"cdefghiklmnopqrstuv"]
    text = two_tokenizers.tokenizer.convert_tokens_to_ids(words)
    found = read(two_tokenizers, prompt, text, temperature=0.8)
    for i, q in enumerate(found.q):
        own = [t for token in (*prompt, *text[:i]) for t in translation.read(token)]
        logits = (
            plain_logits(two_tokenizers.draft, own)
            if len(own) <= 24
            else torch.zeros(VOCABULARY).double()
        )
        torch.testing.assert_close(q, warp(translation.over_target(logits), Warping(0.8)))
    assert len(own) > 24


@pytest.mark.parametrize(("warping", "which", "penalties"), pairwise(
    WARPINGS, ["pair", "two_tokenizers"], [False, [RepetitionPenaltyLogitsProcessor(1.7)]]
))  # fmt: skip
def test_it_is_what_speculative_decoding_compares(request, which, warping, penalties):
    """p and q of every token that it drafted, rejected ones too, where it tested it."""
    pair, options = request.getfixturevalue(which), {**as_options(warping), "penalties": penalties}
    result = generate(
        pair, [5, 6, 7], "speculative", max_new_tokens=30, ignore_eos=True, seed=2, **options
    )
    found, tested, at = read(pair, [5, 6, 7], result.tokens, **options), 0, 0
    for round_ in result.rounds:
        depths = {}
        for trial in round_.trials:
            place = depths.get(trial.parent, at)
            depths[trial.node] = place + 1
            if trial.fate in DRAFTED and trial.p is not None:
                assert found.p[place, trial.token].item() == pytest.approx(trial.p, abs=1e-6)
                assert found.q[place, trial.token].item() == pytest.approx(trial.q, abs=1e-6)
                tested += 1
        at += len(round_.tokens)
    assert tested > 15
    for i, trial in enumerate(result.trials):
        assert found.log_p[i, trial.token].item() == pytest.approx(trial.log_p, abs=1e-6)


@pytest.mark.parametrize(("text", "options", "said"), [
    ("abc", {}, "^The text to read is one or more lists of token ids, not str.$"),
    ([1, [2]], {}, "^The text to read is one or more lists of token ids, not int.$"),
    ([VOCABULARY], {}, f"^Token id {VOCABULARY} is out of range; the vocabulary has ids 0 to"),
    ([5] * 511,
     {},
     ("^The prompt and the text, 513 tokens together, exceed the 512 positions of the "
      "target model")),
    ([5], {"temperature": -1}, "^temperature must be a number from"),
    ([5], {"penalties": 3}, "^penalties must be true, false or a list"),
])  # fmt: skip
def test_what_cannot_be_read_is_one_sentence(pair, text, options, said):
    with pytest.raises(InputError, match=said):
        read(pair, [3, 4], text, **options)


def test_logits_that_are_not_numbers():
    target = build()
    broken = ModelPair(target, None)
    with torch.no_grad():
        target.lm_head.weight[7] = float("nan")
    with pytest.raises(ModelError, match="gave logits that are not numbers; check its weights and"):
        decoders.read(broken, [5])
