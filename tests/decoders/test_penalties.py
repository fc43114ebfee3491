"""Processors of a generation config that depend on the text alone.

They are applied at every node, on request, and reported."""

import logging

import numpy as np
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

ASKED = {
    "repetition_penalty": 1.7,
    "no_repeat_ngram_size": 2,
    "bad_words_ids": [[4], [9, 11]],
    "suppress_tokens": [6, 30],
    "begin_suppress_tokens": [7, 41],
}
PROMPTS = [[5, 6, 7, 8], [9] * 12]


def asking(pair, **settings):
    for name, value in settings.items():
        setattr(pair.target.generation_config, name, value)
    return pair


@pytest.mark.parametrize("setting", [*ASKED, "all"])
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
        assert [
            r.tokens for r in generate(pair, PROMPTS, method, prefill_chunk=5, **options)
        ] == theirs
    assert generate(pair, PROMPTS[0], "greedy", max_new_tokens=16).tokens == free


def penalised(model, text, processors):
    """The log-probabilities (V,) after a text."""
    with torch.inference_mode():
        row = model(torch.tensor([text]), use_cache=False).logits[:, -1]
    return processors(torch.tensor([text]), row)[0].log_softmax(-1)


@pytest.mark.parametrize("name", ["multinomial", "speculative", "specinfer", "spectr", "mcss"])
def test_the_law_is_that_of_the_penalised_target(name):
    """Every text of two tokens with its probability, enumerated through the loop and packed
    passes."""
    torch.manual_seed(0)
    target, draft = build(vocab_size=4, seed=3), build(vocab_size=4, seed=4)
    pair = asking(ModelPair(target, draft), repetition_penalty=1.8, begin_suppress_tokens=[2])
    prompt, small = (
        [1, 3],
        {
            "speculative": {"draft_length": 2},
            "specinfer": {"expansion": (2,)},
            "mcss": {"expansion": (2,)},
            "spectr": {"drafts": 2, "draft_length": 1},
        },
    )
    method = catalog[name](**small.get(name, {}))

    law = laws.enumerated(pair, prompt, method, max_new_tokens=2, temperature=0.8, penalties=True)
    penalty = RepetitionPenaltyLogitsProcessor(1.8)
    first = LogitsProcessorList([penalty, SuppressTokensLogitsProcessor([2])])
    exact = laws.of_two_tokens(target, prompt, 0.8, (first, LogitsProcessorList([penalty])))
    assert variation(law, exact) < 1e-9
    assert law.get((2, 0), 0.0) == 0


def test_log_probabilities_are_those_that_were_sampled():
    pair = asking(build_pair(), repetition_penalty=1.5)
    result = generate(pair, PROMPTS[0], "speculative", max_new_tokens=12, seed=1, penalties=True)
    processors = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(1.5)])
    for i, trial in enumerate(result.trials):
        row = penalised(pair.target, PROMPTS[0] + result.tokens[:i], processors)
        np.testing.assert_allclose(trial.log_p, row[trial.token], atol=1e-9)


def test_processors_of_the_callers():
    pair, processors = build_pair(), [RepetitionPenaltyLogitsProcessor(1.7)]
    options = {"max_new_tokens": 20, "temperature": 0}
    theirs = by_transformers(pair.target, PROMPTS[0], 20, repetition_penalty=1.7)
    assert (
        generate(pair, PROMPTS[0], "speculative", penalties=processors, **options).tokens == theirs
    )
    for wrong in ("yes", [MinPLogitsWarper(0.1)], 1.2):
        with pytest.raises(
            InputError,
            match="penalties must be true, false or a list of logits processors of transf",
        ):
            check(pair, PROMPTS[0], "greedy", penalties=wrong)


def test_a_config_that_cannot_be_applied():
    pair = asking(build_pair(), repetition_penalty=-2.0)
    with pytest.raises(
        InputError,
        match=r"The target's generation config cannot be applied .*; mend it or leave penalti",
    ):
        check(pair, PROMPTS[0], "greedy", penalties=True)


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


def test_every_decoder_is_the_same_alone_and_in_a_batch():
    pair = asking(build_pair(eos=0), **ASKED)
    options = {"max_new_tokens": 4, "top_k": 20, "penalties": True}
    for name in catalog:
        alone = [
            generate(pair, p, name, seed=7 + i, **options).tokens for i, p in enumerate(PROMPTS)
        ]
        assert [r.tokens for r in generate(pair, PROMPTS, name, seed=7, **options)] == alone
        assert not {4, 6, 30} & {token for tokens in alone for token in tokens}
