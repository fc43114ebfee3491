"""GGUF files are read as plain weights; a model of one then runs like any other."""

import gguf
import pytest
import torch
from transformers import AutoTokenizer

from decoders import ModelPair, compare_greedy, generate, load_pair
from decoders.engine.loading.load import EMBEDDED
from tests.decoders.engine.loading.test_load import refused
from tests.gguf_files import write_gguf
from tests.models import build_both

TOKENIZER = EMBEDDED / "draft" / "tokenizer.json"
PROMPT = "Once upon a time"
Q8 = gguf.GGMLQuantizationType.Q8_0


@pytest.fixture(scope="module")
def models():
    return build_both(torch.float32, eos=0, noise=0.01, vocab_size=4096, intermediate_size=64)


@pytest.fixture(scope="module")
def files(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    return [
        write_gguf(folder / "target.gguf", models[0], TOKENIZER),
        write_gguf(folder / "draft.GGUF", models[1], TOKENIZER, Q8),
    ]


def test_the_pair_writes_what_the_models_write(models, files):
    """Weights, tokenizer and end token are the file's; logits are checked by whole texts."""
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "draft")
    own, found = ModelPair(*models, tokenizer), load_pair(*files, device="cpu")
    assert (found.end_tokens, found.target.dtype) == ({0}, torch.float32)
    assert found.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert found.target.config.name_or_path == str(files[0])
    text = 'Once, a "girl" said: 12345 it\'s\n\n  é.'
    assert found.tokenizer(text).input_ids == tokenizer(text).input_ids
    for method, temperature in (("greedy", 0), ("speculative", 0), ("multinomial", 1)):
        a, b = (
            generate(pair, PROMPT, method, max_new_tokens=24, temperature=temperature, seed=3)
            for pair in (own, found)
        )
        assert a.tokens == b.tokens
        assert (method == "speculative") == bool(b.metrics.accepted)
    assert compare_greedy(found, PROMPT, (5, 9), (5, 8), dtype="float64") is not None


def test_quantised_weights_become_the_numbers_that_they_stand_for(models, files):
    found = load_pair(files[1], device="cpu", dtype="float64").target
    weight = models[1].model.layers[0].mlp.up_proj.weight.detach().float().numpy()
    stored = gguf.quants.dequantize(gguf.quants.quantize(weight, Q8), Q8)
    assert torch.equal(found.model.layers[0].mlp.up_proj.weight, torch.tensor(stored).double())
    assert not getattr(found, "hf_quantizer", None)


@pytest.mark.slow
def test_a_file_drafts_for_a_folder_and_a_folder_for_a_file(files):
    pair = load_pair(EMBEDDED / "target", files[1], device="cpu")
    assert generate(pair, PROMPT, "speculative", max_new_tokens=4).text
    assert load_pair(files[0], EMBEDDED / "draft", device="cpu").one_tokenizer


def test_what_is_missing_is_named(files, tmp_path):
    gone = "There is no file .*; name a GGUF file that is there"
    refused(gone, tmp_path / "other.gguf")
    refused(gone, "some/model.gguf")
    refused(gone, files[0], tmp_path / "draft.gguf")
    refused("cannot be looked up", "a\0.gguf")
    refused("is a folder with GGUF files; name one of them", files[0].parent)
    refused("is a GGUF file; leave quantization out", files[0], quantization="int8")


def test_files_that_cannot_be_read(models, files, tmp_path):
    whole, broken = files[0].read_bytes(), tmp_path / "broken.gguf"
    for part in (b"", b"no model", whole[:20], whole[:1000], whole[:-1000]):
        broken.write_bytes(part)
        refused("broken.gguf is a broken or incomplete GGUF file; download it again", broken)
    other = write_gguf(tmp_path / "a.gguf", models[0], TOKENIZER, architecture="grok")
    refused("of an architecture that transformers does not read from such files", other)
    lacks = "model.layers.1.mlp.up_proj.weight"
    less = write_gguf(tmp_path / "b.gguf", models[0], TOKENIZER, leave_out=lacks)
    refused(f"has no weights for {lacks}", less)
