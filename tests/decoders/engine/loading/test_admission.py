"""A model is admitted only if its packed passes answer like plain ones."""

import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM, LlamaForCausalLM

from decoders import InputError, ModelPair, generate
from tests import zoo
from tests.models import build
from tests.pairwise import pairwise, part

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


class Changed(LlamaForCausalLM):
    """Its packed passes compute something else, and its logits are shifted in all passes.

    A softmax does not see the shift."""

    shift = 0.0

    def forward(self, input_ids, position_ids=None, **others):
        if "packing" in others:
            position_ids = self.place(position_ids)
        out = super().forward(input_ids, position_ids=position_ids, **others)
        out.logits = self.answer(out.logits, "packing" in others) + self.shift
        return out

    def place(self, position_ids):
        return position_ids

    def answer(self, logits, packed):
        return logits


class DeafToPositions(Changed):
    def place(self, position_ids):
        return None


class PositionsFromTheFirst(Changed):
    """Right as long as each pass begins with the first token of some text."""

    def place(self, position_ids):
        return position_ids - position_ids.min()


class Rounded(Changed):
    """Two passes of this model differ as much as products in TF32 do."""

    def answer(self, logits, packed):
        noise = torch.randn(logits.shape, generator=torch.Generator().manual_seed(int(packed)))
        return logits * (1 + noise.to(logits.dtype) * 2**-11)


OTHER = "it does not give the logits of a pass over the whole text"


def why_not_packed(model):
    """Such a model runs with its own cache instead."""
    return ModelPair(model, None).plain["target"].why


def make(kind=Changed, dtype=torch.float32, shift=0.0, **changes):
    torch.manual_seed(0)
    model = kind(build(**changes).config).to(dtype)
    model.shift = shift
    return model


@pytest.mark.parametrize(
    ("kind", "shift", "dtype"),
    pairwise([DeafToPositions, PositionsFromTheFirst], [0.0, -10.0], DTYPES),
    ids=str,
)
def test_silent_failure_is_caught(kind, dtype, shift):
    """Models that run, with wrong logits.

    The check was one pass without cached rows, so it did not see faults over cached rows; and its
    bound grew with an offset of all logits, so that in bfloat16 it saw next to nothing."""
    assert why_not_packed(make(kind, dtype, shift)) == OTHER


@pytest.mark.parametrize(("dtype", "shift", "changes"), part(pairwise(
    DTYPES,
    [0.0, -10.0],
    [{}, {"num_hidden_layers": 24, "initializer_range": 0.1}, {"initializer_range": 0.02}],
), 6), ids=str)  # fmt: skip
def test_rounding_is_allowed_for(dtype, shift, changes):
    assert not ModelPair(make(Changed, dtype, shift, **changes), None).plain


@pytest.fixture
def tf32():
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


def test_products_in_tf32_are_allowed_for(tf32):
    """Good float32 models were refused on CUDA if products in TF32 were allowed.

    Many programs call `torch.set_float32_matmul_precision("high")`."""
    assert not ModelPair(make(Rounded), None).plain
    assert why_not_packed(make(PositionsFromTheFirst)) == OTHER


@pytest.mark.parametrize("positions", [2, 9])
def test_models_of_few_positions(positions):
    """No text of the check is longer than the model can see."""
    model = build("gpt2", max_position_embeddings=positions, n_positions=positions)
    assert ModelPair(model, None).positions == positions


def test_one_token():
    """A vocabulary of one token ended in an error of our own."""
    pair = ModelPair(build(vocab_size=1), None)
    assert generate(pair, [0], "beam_search", max_new_tokens=3).tokens == [0] * 3


def test_weights_that_are_no_numbers():
    """They were admitted, for nothing differs from a row of them.

    Decoding then ended in an error, and the workbench's timing in a raw one."""
    model = build()
    with torch.no_grad():
        model.model.norm.weight[3] = torch.nan
    said = r"^The target model .* gives logits that are not numbers; check its weights and"
    with pytest.raises(InputError, match=said):
        ModelPair(model, None)


def test_a_plain_pass_that_fails():
    """DeepSeek V2 with 2 key-value heads of 4 fails in its own attention, where the check ran it.

    Its error came through raw."""

    class Failing(LlamaForCausalLM):
        def forward(self, input_ids, **others):
            if "packing" not in others:
                raise RuntimeError("The size of tensor a (4) must match\nand more")
            return super().forward(input_ids, **others)

    said = r"\(llama\) cannot be run: its own pass .* \(The size of tensor a \(4\) must match\)"
    with pytest.raises(InputError, match=said):
        ModelPair(make(Failing), None)


class Forgetful(BloomForCausalLM):
    """Of several tokens that follow a text in its cache, it forgets the text for the first."""

    def forward(self, input_ids, cache=None, **others):
        read = cache.get_seq_length() if cache is not None else 0
        out = super().forward(input_ids, cache=cache, **others)
        if read and input_ids.shape[1] > 1:
            out.logits[:, 0] = out.logits[:, 0].flip(-1)
        return out


@pytest.mark.parametrize("size", [67, 1_000])
def test_one_row_that_forgets(size):
    """Half of the rows could be wrong, so a pass that forgets a text for some of them was taken.

    Now such a model reads one token at a time."""
    torch.manual_seed(0)
    config = BloomConfig(vocab_size=size, hidden_size=32, n_layer=1, n_head=4)
    pair = ModelPair(Forgetful(config).eval(), None)
    assert pair.packed["target"].engine_name.startswith("with its own cache, one token at a time")


def test_a_model_that_does_not_run_by_itself():
    """It was refused with three reasons of the engine, none of which was the matter."""
    mixed = build(dtype=torch.bfloat16)
    mixed.model.layers[0].mlp.float()
    wide, bare = zoo.build_pair("gptj", rotary_dim=64)[0], build().model
    for model, said in (
        (wide, r"its own pass over a text, .*; mend its config"),
        (mixed, r"its own pass .* weights are of bfloat16 and float32, so bring them to one dtype"),
        (bare, r"its pass gives no logits; load a causal language model, with AutoModelFor"),
    ):
        with pytest.raises(InputError, match=rf"^The target model .* cannot be run: {said}"):
            ModelPair(model, None)
