"""The first pass of a model shows whether packed attention can replace its own."""

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from decoders import InputError, ModelPair, generate
from decoders.engine.cache import Reach
from decoders.engine.models.packed import PackedModel
from decoders.engine.models.probe import reach_of
from decoders.engine.passes import PackedPasses
from decoders.errors import NotPackedError
from tests.models import VOCABULARY, build

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": VOCABULARY, "intermediate_size": 48,
         "max_position_embeddings": 64, "initializer_range": 0.3, "pad_token_id": 0,
         "bos_token_id": None, "eos_token_id": None}  # fmt: skip


def make(config: str, **changes):
    """In float32, which mixtures of experts need."""
    torch.manual_seed(0)
    config = getattr(transformers, config)(**{**SIZES, **changes})
    return AutoModelForCausalLM.from_config(config).eval()


def why_not_packed(model):
    """Such a model runs with its own cache instead."""
    return ModelPair(model, None).plain["target"].why


def greedy(model, prompt, count):
    """By plain passes."""
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            tokens.append(
                model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax().item()
            )
    return tokens[len(prompt) :]


def with_rope(kind, **parameters):
    rope = {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0, **parameters}
    return build(max_position_embeddings=200, rope_parameters=rope)


def longrope():
    return with_rope(
        "longrope",
        short_factor=[1.0] * 4,
        long_factor=[3.0] * 4,
        original_max_position_embeddings=50,
    )


def test_longrope_ends_where_its_frequencies_change():
    """Its frequencies were chosen by the longest text of a pass.

    A prompt of 5 tokens beside one of 60 drew other tokens than alone, and behind the 50 positions
    of its first training greedy was no longer that of plain passes."""
    pair = ModelPair(longrope(), None)
    assert pair.positions == 50
    with pytest.raises(
        InputError,
        match="exceed the 50 positions of the target model; shorten the prompt or max_new",
    ):
        generate(pair, [3] * 20, "greedy", max_new_tokens=31)
    prompts = [[1, 2, 3, 4, 5], list(range(20))]
    for prompt, result in zip(
        prompts, generate(pair, prompts, "greedy", max_new_tokens=30), strict=True
    ):
        assert result.tokens == greedy(pair.target, prompt, 30)


@pytest.mark.parametrize(
    "model", [longrope, lambda: with_rope("dynamic")], ids=["longrope", "dynamic"]
)
def test_a_long_pass_of_the_caller_changes_nothing(model):
    """The twin shared the buffer of frequencies, which the model changes in place on a long text.

    Passes of the pair in another thread, and with dynamic frequencies all later passes, then used
    the changed ones."""
    model = model()
    engine = PackedPasses(PackedModel(model, "target"))
    with torch.inference_mode():
        model(torch.zeros(1, 300, dtype=torch.long))
    buffers = [m for m in engine.model._twin.modules() if hasattr(m, "inv_freq")]
    assert buffers
    assert all(torch.equal(m.inv_freq, m.original_inv_freq) for m in buffers)


TWICE = {
    "DiffLlamaConfig": {},
    "HrmTextConfig": {"num_layers_per_stack": 1, "H_cycles": 2, "L_cycles": 2},
}  # fmt: skip


@pytest.mark.parametrize("config", TWICE)
def test_a_layer_that_attends_twice_is_not_packed(config):
    """Both attentions of a layer wrote into the same cache rows.

    The first pass had no rows to spoil, so the models loaded and gave wrong tokens."""
    assert why_not_packed(make(config, **TWICE[config])).startswith(
        "a layer attends more than once in a pass"
    )


WINDOWED = {
    "MistralConfig": {},
    "Phi3Config": {},
    "PhimoeConfig": {"num_local_experts": 4},
    "Qwen2Config": {"use_sliding_window": True, "max_window_layers": 0},
}


@pytest.mark.parametrize("window", [1, 2, 16, 40])
@pytest.mark.parametrize("config", WINDOWED)
def test_a_window_is_found_in_the_mask(config, window):
    """The window of phimoe is only in a mask that it requests, which packed attention never gets.

    The model loaded, and from the 17th token on gave other tokens than `generate`. Windows larger
    than the check's prompts are made small for it."""
    model = make(config, sliding_window=window, **WINDOWED[config])
    pair = ModelPair(model, None)
    assert not pair.plain
    assert set(pair.packed["target"].reaches) == {Reach(window)}
    assert generate(pair, [5, 6, 7], "greedy", max_new_tokens=61).tokens == greedy(
        model, [5, 6, 7], 61
    )


@pytest.mark.parametrize("config", WINDOWED)
def test_a_window_as_large_as_the_positions_is_none(config):
    """Phi-3.5-mini has a window of 262,144 tokens and 131,072 positions, and was refused."""
    model = make(config, sliding_window=64, **WINDOWED[config])
    pair = ModelPair(model, None)
    assert not pair.plain
    assert generate(pair, [5, 6, 7], "greedy", max_new_tokens=61).tokens == greedy(
        model, [5, 6, 7], 61
    )


def test_windows_and_chunks_are_told_apart():
    from transformers.masking_utils import (
        chunked_causal_mask_function,
        sliding_window_causal_mask_function,
    )

    cpu = torch.device("cpu")
    for size in (1, 2, 3, 16, 63):
        assert reach_of(sliding_window_causal_mask_function(size), 64, cpu) == Reach(size)
        chunks = reach_of(
            chunked_causal_mask_function(size, torch.zeros(1, dtype=torch.int64)), 64, cpu
        )
        assert chunks == (Reach(1) if size == 1 else Reach(size, chunked=True))
    assert reach_of(sliding_window_causal_mask_function(64), 64, cpu) is None
    for odd in (
        lambda b, h, q, k: (k <= q) & (k != 3),
        lambda b, h, q, k: (k <= q) & (k > q - 4) & (q % 2 == 0),
    ):
        with pytest.raises(
            NotPackedError, match="hides tokens in a way that the packed cache does not model"
        ):
            reach_of(odd, 64, cpu)
    with pytest.raises(NotPackedError, match="looks ahead"):
        reach_of(lambda b, h, q, k: k >= 0, 64, cpu)


def test_an_attention_scaled_by_the_place_in_a_pass_is_not_packed():
    """From the 8,192nd token of a pass on, Llama 4 scales queries in some layers.

    These are the layers without rotary positions. In a packed pass that token may be the first of
    the tenth request."""
    sizes = {
        "head_dim": 8,
        "num_local_experts": 2,
        "no_rope_layers": [1, 0],
        "layer_types": ["full_attention"] * 2,
    }
    why = why_not_packed(make("Llama4TextConfig", **sizes))
    assert why.startswith(
        "its attention is scaled by a token's place in the pass, which is not its position in a "
        "packed"
    )
    assert not ModelPair(
        make("Llama4TextConfig", **sizes, attn_temperature_tuning=False), None
    ).plain


def test_a_mask_of_its_own_making_is_not_packed():
    """Doge adds learned values to its mask; packed attention got no mask: wrong tokens."""
    why = why_not_packed(make("DogeConfig", sliding_window=16))
    assert "takes a mask of its own making" in why or "cannot run a packed pass" in why


def test_a_model_that_looks_ahead_is_refused():
    """BERT without `is_decoder` is a causal language model only by name."""
    with pytest.raises(
        InputError,
        match=(
            r"cannot be run: packed, its attention looks ahead; without a cache, the whole text "
            r"in each pass, it does"
        ),
    ):
        ModelPair(make("BertConfig"), None)
