"""Causal language models of transformers, tiny and random: right, or refused in one sentence.

They run packed or with their own cache; no token is wrong, and no error is raw. `make models` tries
all of them. `tests/zoo.py` says when a token is right. Windows and the like are small enough to
matter."""

import copy

import pytest

from decoders import InputError, ModelPair, catalog, generate
from decoders.engine.models.plain import Following, PlainModel
from tests import zoo
from tests.models import by_transformers, whole_softmax
from tests.pairwise import EVERYWHERE, part

PROMPTS = [[5, 6, 7, 8], [3], list(range(20, 40))]
WINDOWS = [list(range(10, 50))]  # a prompt longer than two of them

LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4, "original_max_position_embeddings": 48,
}  # fmt: skip
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
WIDE, NARROW = {"sliding_window": 96}, {"sliding_window": 16}  # of 96 positions
# Name in transformers, and changes of the config. The window of phimoe is only in a mask that it
# requests, which packed attention never gets: from the 17th token on it gave other tokens than
# `generate`. A window as large as the positions (WIDE) was refused.
PACKED = {
    "llama": {},
    "llama, longrope": {"rope_parameters": LONGROPE},
    "llama, dynamic rope": {"rope_parameters": DYNAMIC},
    "mistral": WIDE,
    "mixtral": {},
    "qwen2": {},
    "qwen3": {},
    "qwen3_moe": {},
    "gemma": {},
    "phi": {},
    "phimoe": {"sliding_window": None},
    "olmo2": {},
    "gpt2": {},
    "gpt_neox": {},
    "opt": {"pad_token_id": 1},
    "cohere": {},
    "glm4": {"pad_token_id": 0},
    "smollm3": {"pad_token_id": 0},
    "deepseek_v3": {},
    "llama4_text": {"attention_chunk_size": 96},
    "mistral, window of 16": NARROW,
    "phi3, window of 16": {**NARROW, "pad_token_id": 0},
    "phimoe, window of 16": NARROW,
    "gemma2, window of 16": {
        **NARROW, "attn_logit_softcapping": 3.0, "attn_implementation": "eager"},
    "gemma3_text, window of 16": NARROW,
    "olmo3, window of 16": NARROW,
    "cohere2, window of 16": NARROW,
    "exaone4, window of 16": NARROW,
    "llama4_text, chunks of 16": {},
    "gpt_oss": {},
}  # fmt: skip
PLAIN = {
    "diffllama": {},  # a layer attends twice, into the same cache rows: wrong tokens
    "roberta": {"pad_token_id": 1},
    "bloom": {},
    "falcon": {},
    "mamba": {},
    "jamba": {},
    "nemotron": {},
    "qwen3_5_text": {},
    "lfm2": {},
}
REFUSED = {"bert, looking ahead": {"is_decoder": False}}
# One of each kind of position, reach, layer and cache, beside the long ones below.
SOME = (
    "llama, longrope", "mixtral", "gpt2", "deepseek_v3", "llama4_text, chunks of 16", "gpt_oss",
    "diffllama", "bloom", "qwen3_5_text", *REFUSED,
)  # fmt: skip


@pytest.mark.parametrize("name", [*PACKED, *PLAIN, *REFUSED] if EVERYWHERE else SOME)
def test_an_architecture(name):
    target, draft = zoo.build_pair(name.split(",")[0], **{**PACKED, **PLAIN, **REFUSED}[name])
    try:
        pair = ModelPair(target, draft)
    except InputError as error:
        message = str(error)
        assert name in REFUSED, message
        assert message.startswith("The target model ")
        assert "\n" not in message
        assert len(message) < 400
        return
    assert name not in REFUSED
    assert bool(pair.plain) == (name in PLAIN), pair.plain
    zoo.assert_pair_right(pair, target)


LONG = (  # those that people load, tiny: windows and chunks of 16 tokens
    "gemma2", "gemma3_text", "gpt_oss", "olmo3", "cohere2", "llama4_text", "falcon", "bloom",
    "qwen3_5_text", "mamba", "deepseek_v3",
)  # fmt: skip
# parts of them, also in a float64 model
IN_FLOAT32 = {"llama4_text", "bloom", "qwen3_5_text", "mamba", "deepseek_v3"}
FLOAT32 = 1e-4


@pytest.fixture(scope="module", params=part(LONG, 3))
def pair(request) -> ModelPair:
    return ModelPair(*zoo.build_pair(request.param))


def test_generate_beyond_twice_the_window(pair):
    """Greedy and beam search, also the one that drafts; all three in a batch too."""
    target, prompt = pair.target, list(range(10, 40))
    found = generate(pair, prompt, "greedy", max_new_tokens=40, ignore_eos=True)
    assert found.tokens == by_transformers(target, prompt, 40)
    theirs = [by_transformers(target, p, 24, num_beams=3) for p in (prompt, prompt[:7])]
    for method in (
        catalog["beam_search"](beams=3),
        catalog["speculative_beam_search"](beams=3, draft_length=2, draft_beams=4),
    ):
        options = {"max_new_tokens": 24, "ignore_eos": True}
        assert generate(pair, prompt, method, **options).tokens == theirs[0]
        both = generate(pair, [prompt, prompt[:7]], method, **options)
        assert [r.tokens for r in both] == theirs


@pytest.mark.parametrize("name", part(LONG, 3))
def test_rules_compare_the_models_own_laws(name):
    """Decision, p and q of each token of decoders, against plain passes over whole texts.

    So the laws enumerated on tables hold on these models, in trees, beams and windows."""
    target, draft = (model.double() for model in zoo.build_pair(name))
    for model in (target, draft):
        model.config._experts_implementation = "eager"  # the others have no float64
    pair = ModelPair(target, draft, passes="plain")
    plainly, own = copy.copy(pair), target._supports_attention_backend
    whole = Following(cached=False, attention="eager" if own else None)
    plainly.packed = {
        role: PlainModel(m.model, role, m.vocabulary, whole, "of a test")
        for role, m in pair.packed.items()
    }
    allowed = FLOAT32 if name in IN_FLOAT32 else 1e-9
    options = {"max_new_tokens": 6, "top_k": 20, "temperature": 0.8, "seed": 3, "ignore_eos": True}
    for method in ("speculative", "mtad", "dsbd", catalog["specinfer"](expansion=(2, 2))):
        ours = generate(pair, PROMPTS[:1] + WINDOWS, method, **options)
        with whole_softmax():
            theirs = generate(plainly, PROMPTS[:1] + WINDOWS, method, **options)
        for one, other in zip(ours, theirs, strict=True):
            trials, expected = ([t for r in each.rounds for t in r.trials] for each in (one, other))
            assert [(t.token, t.fate) for t in trials] == [(t.token, t.fate) for t in expected]
            for which in ("p", "q"):
                values = [getattr(t, which) for t in expected]
                assert [getattr(t, which) for t in trials] == pytest.approx(values, abs=allowed)
