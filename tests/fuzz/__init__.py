"""Calls of the public API with odd types and values, drawn by hypothesis.

Each must give a result or the documented error. A call is Python source, so that a failure can be
pasted: `from tests.fuzz import run; run("decoders.check(pair, None, 'greedy')")`."""

import contextlib
import io
import logging
import resource
import signal
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from transformers import RepetitionPenaltyLogitsProcessor, TextStreamer
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

import decoders
from tests.fuzz.calls import CALLS
from tests.models import build, build_pair, build_tokenizer

LONGEST_MESSAGE = 1_000
# bytes beyond those in use; a call that asks for more has not looked at its numbers
MEMORY = 8 * 2**30
SECONDS = 300  # for one call, on a busy machine


class Mute:
    """Cannot be compared, counted, listed, hashed, taken as true or put into words."""

    def _no(self, *given: Any) -> Any:
        raise RuntimeError("no")

    __eq__ = __bool__ = __repr__ = __hash__ = __len__ = _no
    __iter__ = __lt__ = __le__ = __gt__ = __ge__ = _no


def generated(method: Any, **options: Any) -> Any:
    """The tokens of transformers' own `generate` with a decoder in it."""
    ids, target = torch.tensor([[5, 9, 3]]), world()["target"]
    return target.generate(ids, custom_generate=method, max_new_tokens=4, pad_token_id=0, **options)


@cache
def world() -> dict[str, Any]:
    """The names that calls may use: a tiny pair, its parts, and a folder that holds it."""
    tokenizer = build_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}.{% endfor %}"
    pair = build_pair(dtype=torch.float32, tokenizer=tokenizer, eos=0)
    folder = Path(tempfile.mkdtemp(prefix="fuzz"))
    for name, model in (("target", pair.target), ("draft", pair.draft)):
        model.save_pretrained(folder / name)
        pair.tokenizer.save_pretrained(folder / name)
    (folder / "story.txt").write_text("Once upon a time.")
    return {
        "pair": pair, "target": pair.target, "draft": pair.draft, "tokenizer": pair.tokenizer,
        "folder": folder, "bare": decoders.ModelPair(pair.target, None),
        "encoder": build("gpt2", dtype=torch.float32, seed=2), "generated": generated,
        "decoders": decoders, "np": np, "torch": torch, "threading": threading, "Path": Path,
        "Mute": Mute, "Decimal": Decimal, "Fraction": Fraction, "TextStreamer": TextStreamer,
        "Penalty": RepetitionPenaltyLogitsProcessor, "Lookup": PromptLookupCandidateGenerator,
    }  # fmt: skip


def run(call: str) -> str:
    """Run a call: "" if it gave a result, or the name of the documented error.

    Raises any other, and an AssertionError if the message cannot be shown or is no sentence."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            eval(call, dict(world()))
        return ""
    except (decoders.InputError, decoders.ModelError) as error:
        said = str(error)
        assert said.encode().strip()  # half a character could be shown and sent nowhere
        assert "\n" not in said
        assert len(said) <= LONGEST_MESSAGE
        return type(error).__name__


@contextlib.contextmanager
def fenced() -> Iterator[None]:
    """No hub, no output of other libraries, limited memory, and a limit on the time of each
    call."""

    def late(*given: Any) -> None:
        raise TimeoutError(f"no answer in {SECONDS} seconds")

    memory, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGALRM, late)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, memory[1]))
    logging.disable(logging.ERROR)
    try:
        with (
            mock.patch("huggingface_hub.constants.HF_HUB_OFFLINE", True),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, memory)
        logging.disable(logging.NOTSET)


def fuzz(calls: int, first: int | None = None) -> Counter[str]:
    """Run this number of calls, drawn from a seed or always the same.

    Returns how often each documented error came out; "" counts results. Raises any other error,
    with the call to paste in its notes."""
    seen: Counter[str] = Counter()

    @settings(
        phases=(Phase.generate, Phase.shrink), max_examples=calls, deadline=None, database=None,
        derandomize=first is None, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(CALLS)
    def each(call: str) -> None:
        note(f"from tests.fuzz import run; run({call!r})")
        signal.alarm(SECONDS)
        seen[run(call)] += 1

    world()
    with fenced():
        (each if first is None else seed(first)(each))()
    return seen
