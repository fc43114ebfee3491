"""Engines that decode the same prompts in turn: ours, llama.cpp's library, servers (Contender)."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

import decoders
from tools.engines.places import ROOT, Places
from workbench.engines.addresses import Engine
from workbench.engines.probe import connect
from workbench.engines.record import Query

Ids = list[int]


@dataclass(frozen=True)
class Decoded:
    """What came of some prompts.

    Attributes:
        texts: the new tokens of each
        seconds: from the first tokens of all of them to the end
        timed: tokens that came within these seconds
        drafted: draft tokens
        accepted: those of them that were kept
    """

    texts: list[Ids]
    seconds: float
    timed: int
    drafted: int = 0
    accepted: int = 0


# Decodes prompts, one after another or all at once.
Contender = Callable[[list[Ids]], Decoded]


def in_turn(decode: Contender) -> Contender:
    """Decodes one prompt after another."""

    def run(prompts: list[Ids]) -> Decoded:
        found = [decode([ids]) for ids in prompts]
        return Decoded(
            [text for each in found for text in each.texts],
            sum(each.seconds for each in found),
            sum(each.timed for each in found),
            sum(each.drafted for each in found),
            sum(each.accepted for each in found),
        )

    return run


def ours(pair: decoders.ModelPair, method: decoders.Method, tokens: int) -> Contender:
    """A decoder of ours, on a batch."""
    options = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0.0}

    def decode(prompts: list[Ids]) -> Decoded:
        began, timed, seen, results = 0.0, 0, set(), {}
        for event in decoders.stream(pair, prompts, method, **options):
            if len(seen) == len(prompts):
                timed += len(event.append)
            elif event.append:
                seen.add(event.request)
                began = time.perf_counter()
            if event.result is not None:
                results[event.request] = event.result
        seconds, ordered = time.perf_counter() - began, [results[i] for i in range(len(prompts))]
        return Decoded(
            [list(result.tokens) for result in ordered],
            seconds,
            timed,
            sum(result.metrics.drafted for result in ordered),
            sum(result.metrics.accepted for result in ordered),
        )

    return decode


class Library:
    """llama.cpp's library in a process, greedy, on a batch.

    Args:
        places: where it is installed
        model: the GGUF file
        threads: of each pass
        sequences: the most prompts of a batch
        tokens: new tokens of each prompt
    """

    def __init__(self, places: Places, model: Path, threads: int, sequences: int, tokens: int):
        self.tokens, child = tokens, ROOT / "tests" / "speed" / "llama_child.py"
        python = places.llama_python / "bin" / "python"
        libraries = {"LLAMA_CPP_LIB_PATH": str(places.llama_cpp / "bin")}
        self.process = subprocess.Popen(
            # -P: this folder has a file with the name of the library
            [python, "-P", child, model, str(threads), str(sequences)],
            env={**os.environ, **libraries, "OMP_NUM_THREADS": str(threads)},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __call__(self, prompts: list[Ids]) -> Decoded:
        self.process.stdin.write(json.dumps([prompts, self.tokens]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise decoders.InputError("llama.cpp's library failed; its error stands above.")
        _, seconds, texts = json.loads(answer)
        return Decoded(texts, seconds, len(texts) * (self.tokens - 1))

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def llama_served(address: str, tokens: int) -> Contender:
    """llama.cpp's server, by its own clock: without HTTP, from the first token on."""
    client = httpx.Client(base_url=address, timeout=120, trust_env=False)
    asked = {"n_predict": tokens, "temperature": 0.0, "ignore_eos": True, "return_tokens": True}
    asked |= {"cache_prompt": False, "samplers": ["temperature"]}

    def decode(prompts: list[Ids]) -> Decoded:
        (ids,) = prompts
        answer = client.post("/completion", json={"prompt": ids, **asked}).raise_for_status().json()
        timings, text = answer["timings"], answer["tokens"]
        drafts = [timings.get(name, 0) for name in ("draft_n", "draft_n_accepted")]
        return Decoded([text], timings["predicted_ms"] / 1e3, len(text) - 1, *drafts)

    return decode


def served(name: str, url: str, tokens: int) -> Contender:
    """Any server that takes and tells token ids, from outside, from its first tokens on."""
    client = connect(Engine(name, url))

    def decode(prompts: list[Ids]) -> Decoded:
        (ids,) = prompts
        record = client.ask(Query(tuple(ids), tokens, temperature=0.0))
        if record.tokens is None:
            raise decoders.InputError(f"{name} tells no token ids; compare it by text.")
        (began, first), (ended, _) = record.arrivals[0], record.arrivals[-1]
        text, told = list(record.tokens), record.speculation
        drafts = (told.drafted, told.accepted) if told else ()
        return Decoded([text], ended - began, len(text) - (first or 0), *drafts)

    return decode
