"""Processors of a generation config that depend on the text alone.

They are applied at every node, on request, and reported."""

import logging

import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from decoders import InputError, ModelPair, catalog, check, generate
from decoders.testing.situations import variation
from tests import laws
from tests.models import VOCABULARY, build, build_pair, by_transformers
from tests.pairwise import part

ASKED = {
    "repetition_penalty": 1.7, "no_repeat_ngram_size": 2, "bad_words_ids": [[4], [9, 11]],
    "suppress_tokens": [6, 30], "begin_suppress_tokens": [7, 41],
}  # fmt: skip
PROMPTS = [[5, 6, 7, 8], [9] * 12]


def asking(pair, **settings):
    for name, value in settings.items():
        setattr(pair.target.generation_config, name, value)
    return pair


@pytest.mark.parametrize("setting", part(["all", *ASKED], 3))
def test_greedy_is_generate(setting):
    pair = build_pair()
    free = generate(pair, PROMPTS[0], "greedy", max_new_tokens=16).tokens
    wanted = ASKED if setting == "all" else {setting: ASKED[setting]}
    if setting == "suppress_tokens":
        wanted = {setting: free[:2]}
    if setting == "begin_suppress_tokens":
        wanted = {setting: free[:1]}
    if setting == "bad_words_ids":
        wanted = {setting: [free[:1], free[2:4]]}
    asking(pair, **wanted)
    theirs = [by_transformers(pair.target, prompt, 16) for prompt in PROMPTS]
    assert theirs != [by_transformers(build(), prompt, 16) for prompt in PROMPTS]
    options = {"max_new_tokens": 16, "temperature": 0, "penalties": True}
    assert [r.tokens for r in generate(pair, PROMPTS, "greedy", **options)] == theirs
    drafting = (
        catalog["specinfer"](expansion=(2, 2))
        if setting == "all"
        else catalog["speculative"](draft_length=3)
    )
    for method in (drafting, catalog["lookup"]()):
        ours = generate(pair, PROMPTS, method, prefill_chunk=5, **options)
        assert [r.tokens for r in ours] == theirs
    assert generate(pair, PROMPTS[0], "greedy", max_new_tokens=16).tokens == free


@pytest.mark.parametrize(
    ("name", "settings"), [("speculative", {"draft_length": 2}), ("mcss", {"expansion": (2,)})]
)
def test_the_law_is_that_of_the_penalised_target(name, settings):
    """Every text of two tokens with its probability, enumerated through the loop and packed
    passes."""
    torch.manual_seed(0)
    target, draft = build(vocab_size=4, seed=3), build(vocab_size=4, seed=4)
    pair = asking(ModelPair(target, draft), repetition_penalty=1.8, begin_suppress_tokens=[2])
    prompt, method = [1, 3], catalog[name](**settings)
    law = laws.enumerated(pair, prompt, method, max_new_tokens=2, temperature=0.8, penalties=True)
    penalty = RepetitionPenaltyLogitsProcessor(1.8)
    first = LogitsProcessorList([penalty, SuppressTokensLogitsProcessor([2])])
    exact = laws.of_two_tokens(target, prompt, 0.8, (first, LogitsProcessorList([penalty])))
    assert variation(law, exact) < 1e-9
    assert law.get((2, 0), 0.0) == 0


def test_processors_of_the_callers():
    pair, processors = build_pair(), [RepetitionPenaltyLogitsProcessor(1.7)]
    options = {"max_new_tokens": 20, "temperature": 0}
    ours = generate(pair, PROMPTS[0], "speculative", penalties=processors, **options).tokens
    assert ours == by_transformers(pair.target, PROMPTS[0], 20, repetition_penalty=1.7)
    for wrong in ("yes", [MinPLogitsWarper(0.1)], 1.2):
        with pytest.raises(
            InputError,
            match="penalties must be true, false or a list of logits processors of transf",
        ):
            check(pair, PROMPTS[0], "greedy", penalties=wrong)


def test_words_outside_of_the_vocabulary_are_refused_before_work():
    """transformers raises a ValueError at the first token."""
    pair = asking(build_pair(), bad_words_ids=[[VOCABULARY]])
    with pytest.raises(
        InputError, match=r"The penalties cannot be applied \(.*\); mend them or leave them out"
    ):
        check(pair, PROMPTS[0], "greedy", penalties=True)


def test_every_token_ruled_out(caplog):
    """An error of ours names the token; nothing is drawn from a distribution of nothing."""
    caplog.set_level(logging.ERROR, "decoders")
    pair = asking(build_pair(), suppress_tokens=list(range(VOCABULARY)))
    result = generate(pair, [PROMPTS[0]], "greedy", max_new_tokens=3, penalties=True)[0]
    assert "gave logits that are not numbers at token 1" in str(result.error)
