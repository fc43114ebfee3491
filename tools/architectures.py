"""Tries every causal architecture of transformers, tiny and random, and writes docs/models.md.

    python -m tools.architectures           all of them (make models)
    python -m tools.architectures bloom …   only these, in the table that is there

Each architecture of the installed transformers runs in its own process, with limits on memory and
on the time that it computes: a busy machine changes no row."""

import json
import logging
import multiprocessing
import os
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from decoders import InputError, ModelPair
from decoders.errors import first_line
from tests import zoo

TABLE = Path(__file__).parents[1] / "docs" / "models.md"
SECONDS, MEMORY = 120, 12 * 2**30
HEAD = "| type | result | how, or why not |\n|---|---|---|\n"
WORDS = {
    "packed": "right, in packed passes",
    "plain": "right, with their own cache, one request at a time",
    "refused": "refused",
    "not built": "not built",
    "wrong": "wrong",
    "error": "raw error",
}


def verdict(model_type: str) -> tuple[str, str]:
    """The result, one of WORDS, and its reason."""
    try:
        target, draft = zoo.build_pair(model_type)
    except Exception as error:
        # of transformers: its config is too small, or a package is missing
        return "not built", first_line(error)
    try:
        pair = ModelPair(target, draft)
    except InputError as error:
        return "refused", str(error).partition(" cannot be run: ")[2] or str(error)
    model = pair.packed["target"]
    try:
        zoo.assert_pair_right(pair, target)
    except AssertionError as error:
        return "wrong", first_line(error)
    return ("packed", "") if model.packed else ("plain", f"{model.following.said}: {model.why}")


def child(model_type: str, answers: multiprocessing.SimpleQueue) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    try:
        answers.put(verdict(model_type))
    except BaseException as error:
        answers.put(("error", f"{type(error).__name__}: {first_line(error)}"))


def tried(model_type: str) -> tuple[str, str]:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    process = context.Process(target=child, args=(model_type, answers))
    process.start()
    process.join(20 * SECONDS)
    if process.is_alive():  # it waits for something
        process.kill()
    return (
        answers.get()
        if not answers.empty()
        else ("error", f"it took more than {SECONDS} s, or broke its process down")
    )


def read() -> dict[str, tuple[str, str]]:
    """The rows of the table that is there."""
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {name: (result, " | ".join(why)) for name, result, *why in cells if result in WORDS}


def written() -> str:
    """The sections after the table that is there, which are written by hand."""
    return "".join(TABLE.read_text().partition("\n## ")[1:]) if TABLE.exists() else ""


def write(rows: dict[str, tuple[str, str]]) -> None:
    counts = Counter(result for result, _ in rows.values())
    said = ", ".join(
        f"{counts[result]} {words}"
        for result, words in WORDS.items()
        if counts[result] or result in ("wrong", "error")
    )
    lines = [
        f"| {name} | {result} | {clean(why)} |\n" for name, (result, why) in sorted(rows.items())
    ]
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(
        "# Which models run\n\n"
        f"{len(rows)} of the {len(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)} causal architectures of "
        "transformers, tiny and random, tried by `make models` (transformers "
        f"{transformers.__version__}, torch {torch.__version__.partition('+')[0]}, CPU, float32): "
        f"{said}.\n\n"
        "Right means: the greedy tokens of a text alone, those of speculative decoding in a batch "
        "of three, and those of draft trees are the likeliest of plain passes over the whole text, "
        "and their log-probabilities are the same. Windows are of 16 tokens, texts of up to 45.\n\n"
        f"{HEAD}{''.join(lines)}{written()}"
    )


def clean(why: str) -> str:
    """Text for a cell, without this machine's paths."""
    why = why.replace("|", "/").replace("`", "'").replace(str(Path.home()), "~").strip().rstrip(".")
    return why if len(why) <= 240 else f"{why[:237]}..."


def main(names: Iterable[str]) -> None:
    rows = read()
    known = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    rows = {name: row for name, row in rows.items() if name in known}
    for name in names or sorted(known):
        rows[name] = tried(name)
        print(json.dumps([name, *rows[name]]), flush=True)
        write(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
