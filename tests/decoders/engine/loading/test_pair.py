"""Models that cannot run are refused by name."""

import copy
import pickle

import pytest
import torch
import transformers
from transformers import T5Config

from decoders import InputError, ModelPair, catalog, generate, hf, load_pair
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PackedPasses
from decoders.reading import Readings
from decoders.tree import TokenTree
from tests.models import VOCABULARY, build, build_pair, build_tokenizer, plain_logits


def test_refused_encoder_decoder(tmp_path):
    """Before weights are read; inside of `generate` T5 was told to leave out encoder_outputs, which
    `generate` itself had added."""
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, **sizes)
    config.save_pretrained(tmp_path)
    model, ids = transformers.T5ForConditionalGeneration(config), torch.tensor([[3, 4]])
    for call in (
        lambda: load_pair(tmp_path),
        lambda: ModelPair(model, None),
        lambda: model.generate(ids, custom_generate=hf("greedy"), max_new_tokens=4),
    ):
        with pytest.raises(InputError, match="is an encoder-decoder model"):
            call()


def test_pairs_are_not_pickled():
    """Pickles and deep copies ended in a raw TypeError about a lock."""
    pair = build_pair()
    for way in (copy.deepcopy, pickle.dumps):
        with pytest.raises(InputError, match="cannot be pickled or deeply copied; do that with"):
            way(pair)
    assert copy.copy(pair).packed == pair.packed


def test_refused_places():
    target = build()
    for pair in ((target, build().to("meta")), (build().to("meta"), None)):
        with pytest.raises(InputError, match="has no weights"):
            ModelPair(*pair)
    for place in ("cpu", "disk"):
        target.hf_device_map = {"model": 0, "lm_head": place}
        with pytest.raises(
            InputError,
            match=f"has weights offloaded to {place}, which every pass would fetch; load it wh",
        ):
            ModelPair(target, None)
    with pytest.raises(InputError, match=r"A model of a pair is a transformers model, not 'gpt2'"):
        ModelPair("gpt2", None)


def test_wrapped_models_are_refused_in_one_sentence():
    """The refusal of peft, compiled and DataParallel models printed all layers, 1,900
    characters."""
    with pytest.raises(
        InputError, match=r"not an object of type DataParallel; .* unwrap a wrapped model"
    ) as caught:
        ModelPair(torch.nn.DataParallel(build()), None)
    assert len(str(caught.value)) < 250
    with pytest.raises(InputError, match="not an object of type OptimizedModule; "):
        ModelPair(build(), torch.compile(build()))
    with pytest.raises(InputError, match="not an object of type NoneType; "):
        ModelPair(None, None)


@pytest.mark.parametrize(
    ("ids", "ends"),
    [(7, {7}), (torch.tensor(7), {7}), (torch.tensor([7, 8]), {7, 8}), (None, set())],
)
def test_end_tokens(ids, ends):
    """In a tensor, which `generate` accepts, the ids were compared as tensors: no text ended."""
    pair = ModelPair(build(), None)
    pair.target.generation_config.eos_token_id = ids
    assert pair.end_tokens == ends
    assert all(type(i) is int for i in pair.end_tokens)


def test_what_decoders_leave_out_is_said_once(caplog):
    """A repetition penalty in a model's generation config was silently ignored."""
    model = build()
    model.generation_config.repetition_penalty, model.generation_config.suppress_tokens = 1.1, [3]
    model.generation_config.typical_p = 0.2
    pair = ModelPair(model, build())
    for _ in range(2):
        generate(pair, [1, 2], "speculative", max_new_tokens=3)
    said = [record.getMessage() for record in caplog.records if record.name == "decoders"]
    assert said == [
        "The generation config of the target model LlamaForCausalLM asks for "
        "repetition_penalty=1.1, suppress_tokens=[3], "
        "which decoders apply with penalties=True; and for typical_p=0.2, which decoders leave out."
    ]
    caplog.clear()
    ModelPair(build(), None)
    assert not caplog.records


@pytest.mark.parametrize("size", [VOCABULARY - 2, VOCABULARY + 5])
@pytest.mark.parametrize("name", ["speculative", "dsbd"])
def test_a_draft_whose_vocabulary_is_padded_otherwise(size, name):
    """Qwen2.5 7B and 0.5B have one tokenizer and embeddings padded to different sizes.

    The pair was refused with "take a draft of the target's family", although it is one. At
    temperature 0 the target's tokens come out, also those that the draft lacks."""
    tokenizer = build_tokenizer()
    tokenizer.get_vocab = lambda: dict.fromkeys("a", VOCABULARY - 3)
    target = build()
    pair = ModelPair(target, build(vocab_size=size), tokenizer)
    prompts = [[5, 6, VOCABULARY - 1], [1], [VOCABULARY - 2] * 4]
    options = {"max_new_tokens": 30, "temperature": 0, "ignore_eos": True}
    results = generate(pair, prompts, name, **options)
    assert all(t < VOCABULARY for result in results for t in result.tokens)
    if catalog[name]().law is not None:
        packed = generate(pair, prompts, "greedy", **options)
        assert [r.tokens for r in results] == [r.tokens for r in packed]


@pytest.mark.parametrize("size", [VOCABULARY - 2, VOCABULARY + 5])
def test_a_draft_of_another_size_has_its_own_law_over_the_targets_tokens(size):
    """Tokens that only the draft has are cut off before its distribution is made.

    Tokens that it lacks have no chance."""
    draft = build(vocab_size=size)
    packed = PackedModel(draft, "draft", VOCABULARY)
    tree, engine = TokenTree([1, 2, 3]), PackedPasses(packed)
    engine.admit(tree, 8)
    (answer,) = engine.run([(tree, [2])])
    plain = plain_logits(draft, [1, 2, 3])[:VOCABULARY]
    assert Readings(answer.logits, 1).sound(slice(None))
    assert answer.logits.shape == (1, VOCABULARY)
    torch.testing.assert_close(answer.logits[0, : len(plain)].softmax(-1), plain.softmax(-1))
    assert not answer.logits[0, len(plain) :].exp().any()


def test_under_autocast():
    """Layers gave keys of another dtype than the cache's, and a raw error came out.

    Passes are in the model's own dtype."""
    pair = build_pair(dtype=torch.float32)
    plain = generate(pair, [1, 2], "speculative", max_new_tokens=20).tokens
    with torch.autocast("cpu", torch.bfloat16):
        assert generate(pair, [1, 2], "speculative", max_new_tokens=20).tokens == plain
        ModelPair(pair.target, pair.draft)
