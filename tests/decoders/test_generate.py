"""The public calls: every kind of prompt and seed, and one clear sentence for all others."""

import copy
import re
import sys
from collections import Counter
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
import torch

from decoders import InputError, catalog, check, generate, load_pair, stream
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PackedPasses
from decoders.inputs import stop_finder
from tests.models import POSITIONS, VOCABULARY, build_pair, build_tokenizer
from tests.needs import needs_kernels


@pytest.fixture(scope="module")
def pair():
    return build_pair(tokenizer=build_tokenizer())


@pytest.fixture
def no_pass(monkeypatch):
    """Any forward pass is a failure."""
    monkeypatch.setattr(PackedModel, "__call__", lambda *args: pytest.fail("a pass was made"))


PROMPTS = {
    "list": [9, 8, 10], "tuple": (9, 8, 10), "text": "bac", "tensor": torch.tensor([9, 8, 10]),
    "array": np.array([9, 8, 10], dtype=np.int32), "list of numpy ints": list(np.array([9, 8, 10])),
    "range": range(8, 11),
}  # fmt: skip


@pytest.mark.parametrize("kind", PROMPTS)
def test_prompts(pair, kind):
    prompt = PROMPTS[kind]
    ids = [8, 9, 10] if kind == "range" else [9, 8, 10]
    result = generate(pair, prompt, "multinomial", max_new_tokens=np.int64(5), seed=np.int64(3))
    assert result.prompt_tokens == ids
    assert result.tokens == generate(pair, ids, "multinomial", max_new_tokens=5, seed=3).tokens
    batch = generate(pair, [prompt, "cab"], "multinomial", max_new_tokens=5, seed=(3, 4))
    assert [r.prompt_tokens for r in batch] == [ids, [10, 8, 9]]
    assert batch[0].tokens == result.tokens


@pytest.mark.parametrize("fill", [1, 40])
def test_a_stop_string_that_spans_special_tokens(pair, fill):
    """The text had no special tokens, the finder had: decoding ran on, and the text was cut."""
    a, b, end = *pair.tokenizer("ab").input_ids, pair.tokenizer.eos_token_id
    finds = stop_finder(pair.tokenizer, ["ab"])
    assert not finds([b, a, *[end] * fill])
    assert finds([b, a, *[end] * fill, b])
    written = iter([a, *[end] * fill, b, b, b])
    options = {"max_new_tokens": fill + 4, "stop": "ab", "ignore_eos": True}
    with mock.patch("decoders.request.SeededSource.draw", side_effect=lambda p: [next(written)]):
        result = generate(pair, "x", "multinomial", **options)
    assert (result.text, result.finished) == ("", "stop string")
    assert len(result.tokens) == fill + 2


class Mute:
    """Cannot be compared, counted as true or put into words."""

    def _no(self, *args):
        raise RuntimeError("no")

    __eq__ = __bool__ = __repr__ = __hash__ = _no


PROMPT = "A prompt is text, a list of token ids or a list of messages"
BAD = {
    "empty text": ({"prompt": ""}, "The prompt is empty; give at least one character or token."),
    "no prompt": ({"prompt": None}, f"{PROMPT}, not NoneType."),
    "number": ({"prompt": 7}, f"{PROMPT}, not int."),
    "float tensor": ({"prompt": torch.rand(3)}, "is not a token id."),
    # its number of bytes is asked for, which raised torch's RuntimeError
    "sparse tensor": ({"prompt": torch.tensor([3, 4]).to_sparse()}, f"{PROMPT}, not Tensor."),
    "nested twice": ({"prompt": [[[1, 2]]]}, "[1, 2] is not a token id."),
    "id too large": ({"prompt": [1, VOCABULARY]},
        f"Token id {VOCABULARY} is out of range; the vocabulary has ids 0 to {VOCABULARY - 1}."),
    "too long": ({"prompt": [1] * POSITIONS},
        f"exceed the {POSITIONS} positions of the target model; "
        "shorten the prompt or max_new_tokens."),
    "budget 0": ({"max_new_tokens": 0},
        "max_new_tokens must be a whole number from 1 to 1000000, not 0."),
    "budget float": ({"max_new_tokens": 5.0}, "not 5.0."),
    "unknown decoder": ({"method": "specultive"}, "did you mean 'speculative'?"),
    "class for a decoder": ({"method": catalog["greedy"]}, 'as catalog["greedy"]()'),
    "temperature": ({"temperature": -0.1},
        "temperature must be a number from 0.0 to 100.0, not -0.1."),
    "temperature nan": ({"temperature": float("nan")}, "not nan."),
    "top_p": ({"top_p": 0}, "top_p must be above 0, which would keep no token; 1 keeps all."),
    "top_k": ({"top_k": -1}, "top_k must be a whole number of 0 or more, not -1."),
    "top_k infinite": ({"top_k": float("inf")}, "not inf."),
    "seed text": ({"seed": "12"},
        "seed must be a whole number below 2**64 or a list of them, not '12'."),
    "seed huge": ({"seed": 2**64}, "below 2**64"),
    "too few seeds": ({"prompt": ["a", "b"], "seed": [1]},
        "There are 2 prompts and 1 seeds; give one int, or one seed for each prompt."),
    "empty stop": ({"stop": ""},
        "stop must be a text of at least one character or a list of such texts, not ''."),
    "max_batch": ({"max_batch": 0}, "max_batch must be a whole number"),
    "ignore_eos array": ({"ignore_eos": np.ones(2)},
        "ignore_eos must be True or False, not array([1., 1.])."),
    "budget tensor": ({"max_new_tokens": torch.tensor(3)}, "not tensor(3); give an int."),
    "temperature fraction": ({"temperature": Fraction(1, 2)},
        "temperature must be a number from 0.0 to 100.0, not Fraction(1, 2); "
        "give an int or a float."),
    "half a character": ({"prompt": "ab\ud83d"},
        "The prompt holds half a character (a lone surrogate, '\\ud83d') at position 2; "
        "remove it."),
    "id of many digits": ({"prompt": [10**5000]}, "Token id a value of type int is out of range"),
    "endless range": ({"prompt": range(10**12)},
        f"{PROMPT}, not range."),
    "a value without words": ({"max_batch": Mute()},
        "max_batch must be a whole number from 1 to 1000000, not <Mute instance at 0x"),
    "clock": ({"clock": 3.5}, "clock must be a function that returns seconds, not 3.5."),
    "cancel": ({"cancel": True},
        "cancel must be a threading.Event or a function that returns True, not True."),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("call", [check, stream])
def test_bad_input(pair, no_pass, call, case):
    changes, message = BAD[case]
    arguments = {"prompt": "abc", "method": "speculative", "max_new_tokens": 5, **changes}
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        call(pair, arguments.pop("prompt"), arguments.pop("method"), **arguments)
    assert str(caught.value).count("\n") == 0


def test_bad_pairs(pair, no_pass):
    alone = copy.copy(pair)
    alone.draft = alone.tokenizer = None
    with pytest.raises(
        InputError,
        match="speculative needs a draft model, and there is none: load a target with a draft",
    ):
        generate(alone, [1], "speculative")
    with pytest.raises(
        InputError, match="This pair has no tokenizer; give the prompt as a list of token ids"
    ):
        generate(alone, "abc", "greedy")
    with pytest.raises(
        InputError, match=r"The first argument is a ModelPair, as load_pair\(\) returns, not str"
    ):
        generate("gpt2", "abc", "greedy")


def test_check_starts_nothing(pair, no_pass, monkeypatch):
    """Only a call of `stream` could tell; it made a generator and an engine for each decoder."""
    monkeypatch.setattr(PackedPasses, "__init__", lambda *args: pytest.fail("an engine was made"))
    for method in catalog.values():
        options = {
            "max_new_tokens": 5, "seed": 3, "stop": "d", "max_batch": 2, "padding": "kv",
            "clock": float, "cancel": lambda: False,
        }  # fmt: skip
        assert check(pair, ["abc", [1, 2]], method.name, top_k=4, **options) is None


def test_check_knows_what_only_a_decoder_refuses(pair):
    with pytest.raises(InputError, match=f"exact would try {VOCABULARY}"):
        check(pair, "abc", catalog["mtjd"](exact=True, block_length=30), max_new_tokens=30)
    with pytest.raises(InputError, match="max_cache_bytes is 10; raise it"):
        check(pair, "abc", "greedy", max_cache_bytes=10)
    with pytest.raises(TypeError, match="temprature"):
        check(pair, "abc", "greedy", temprature=0.5)


@needs_kernels
def test_a_greedy_token_passes_few_files():
    """It passed 20: whoever looked for the way of a token had to read them all."""
    pair, calls = load_pair(), Counter()

    def count(frame, event, _):
        calls[frame.f_code.co_filename] += event == "call"

    def passed(tokens):
        calls.clear()
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            generate(pair, "Once upon a time", "greedy", max_new_tokens=tokens)
        finally:
            sys.setprofile(before)
        return Counter(calls)

    passed(8)
    short, long = passed(32), passed(64)
    ours = generate.__code__.co_filename.removesuffix("generate.py")
    files = {name for name in long if name.startswith(ours) and long[name] > short[name]}
    assert f"{ours}loop.py" in files
    assert len(files) <= 12, sorted(files)
