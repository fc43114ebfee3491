"""The texts that a drafter learns from: files, what the target writes, and which are held out."""

import itertools
import json
import lzma
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from decoders.engine.loading.pair import ModelPair
from decoders.errors import InputError
from decoders.generate import generate
from decoders.inputs import encode

END = "<|endoftext|>"
HELD_OUT = 100  # one question, or piece of text, in this many is never trained on
PART = 128  # texts that the target writes at a time
RUN = 8  # words that a text of the training may not share with a held-out prompt
# The target's own texts are sampled in turn as drafts are used: greedily, and drawn.
TEMPERATURES = 0.0, 0.7, 1.0


class Text(NamedTuple):
    """A text, of which only the tokens after a prompt are learnt from.

    Attributes:
        ids: its tokens
        prompt: how many of them are the prompt
    """

    ids: np.ndarray
    prompt: int = 0


def read_files(files: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """The contents of text files, plain or as .xz.

    Raises:
        InputError: if a file cannot be read
    """
    for file in files:
        try:
            with (lzma.open if file.suffix == ".xz" else open)(file, "rt", encoding="utf-8") as f:
                yield file, f.read()
        except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
            raise InputError(
                f"The text file {file} cannot be read ({error}); name files of plain text."
            ) from None


def read_texts(files: Sequence[Path]) -> Iterator[str]:
    """The documents of text files, which a line `<|endoftext|>` separates; see `read_files`."""
    for _, content in read_files(files):
        yield from (text.strip("\n") for text in content.split(END) if text.strip())


def read_questions(files: Sequence[Path]) -> list[str]:
    """The questions of files: JSON lines that have a "question", or one question a line.

    Raises:
        InputError: if a file cannot be read
    """
    lines = [
        line for _, content in read_files(files) for line in content.split("\n") if line.strip()
    ]
    try:
        return [json.loads(line)["question"] if line.startswith("{") else line for line in lines]
    except (ValueError, KeyError, TypeError):
        raise InputError(
            'A file of questions has a line of JSON without a "question"; write one question a '
            "line."
        ) from None


def read_answers(files: Sequence[Path], vocabulary: int) -> Iterator[Text]:
    """The texts of files of JSON lines [prompt ids, answer ids, temperature].

    Args:
        vocabulary: how many tokens there are

    Raises:
        InputError: if a file cannot be read or holds something else
    """
    for file, content in read_files(files):
        for line in content.splitlines():
            try:
                prompt, answer, *_ = json.loads(line)
                ids = np.array([*prompt, *answer], np.int32)
                whole = ids.ndim == 1 and len(ids) > 0 and ids.min() >= 0 and ids.max() < vocabulary
            except (ValueError, TypeError, OverflowError):
                whole = False
            if not whole:
                raise InputError(
                    f"A line of {file} is not [prompt ids, answer ids, temperature] with ids below "
                    f"{vocabulary:,}; give answers that this target wrote."
                )
            yield Text(ids, len(prompt))


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


class HeldOut:
    """Prompts that a drafter is measured on, and what else must not be learnt because of them."""

    def __init__(self, prompts: Iterable[str]):
        self.prompts = list(prompts)
        self._runs = {run for prompt in self.prompts for run in self._of(words(prompt))}
        self._sizes = sorted({len(run) for run in self._runs})

    @staticmethod
    def _of(said: list[str]) -> Iterator[tuple[str, ...]]:
        size = min(RUN, len(said))
        return (tuple(said[i : i + size]) for i in range(len(said) - size + 1) if size > 2)

    def shares(self, text: str) -> bool:
        """Whether a text has a run of eight words of a prompt, or a whole shorter prompt."""
        said = words(text)
        return any(
            tuple(said[i : i + size]) in self._runs
            for size in self._sizes
            for i in range(len(said) - size + 1)
        )


def as_prompt(pair: ModelPair, question: str) -> list[int]:
    """A question as the target's chat template puts it, or as it is if there is none."""
    chat = getattr(pair.tokenizer, "chat_template", None)
    prompt = [{"role": "user", "content": question}] if chat else question
    return encode(prompt, pair.tokenizer, pair.vocabulary).ids


def write_own(
    pair: ModelPair, prompts: Sequence[list[int]], folder: Path, length: int, seed: int
) -> Iterator[int]:
    """Let the target answer prompts, at the temperatures at which drafters are used.

    Parts that are in the folder stay, so the work resumes after a kill.

    Args:
        pair: its target writes
        prompts: token ids
        folder: gets a file for each part, of JSON lines [prompt, answer, temperature]
        length: tokens of a text at most, its prompt included; longer prompts lose their beginning
        seed: of the first text

    Yields:
        how many are written
    """
    for number, begin in enumerate(range(0, len(prompts), PART)):
        file, part = folder / f"own-{number:04}.jsonl", prompts[begin : begin + PART]
        if not file.is_file():
            rows: list[list] = []
            for i, temperature in enumerate(TEMPERATURES[: len(part)]):
                mine = [prompt[-(3 * length // 4) :] for prompt in part[i :: len(TEMPERATURES)]]
                results = generate(
                    pair, mine, "multinomial", temperature=temperature, max_batch=32,
                    max_new_tokens=length - min(map(len, mine)), seed=seed + begin + i,
                )  # fmt: skip
                for prompt, result in zip(mine, results, strict=True):
                    if result.error is not None:
                        raise result.error
                    rows.append([prompt, result.tokens[: length - len(prompt)], temperature])
            temporary = file.with_suffix(".part")
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.replace(temporary, file)
        yield begin + len(part)


def in_batches(texts: Sequence[Text], tokens: int, seed: int) -> Iterator[list[Text]]:
    """The batches of a training: each text once an epoch, beside others of about its length.

    Args:
        tokens: of a batch at most, places beside shorter texts included
        seed: of their order
    """
    lengths = np.array([len(text.ids) for text in texts])
    for epoch in itertools.count():
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(texts))
        batches: list[list[Text]] = []
        longest = tokens + 1
        for i in order[np.argsort(lengths[order] // 16, kind="stable")]:
            longest = max(longest, lengths[i])
            if not batches or (len(batches[-1]) + 1) * longest > tokens:
                batches.append([])
                longest = lengths[i]
            batches[-1].append(texts[i])
        yield from (batches[i] for i in rng.permutation(len(batches)))


def padded(texts: Sequence[Text]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Texts as one array of ids (B, T), their prompts (B,) and their lengths (B,)."""
    lengths = np.array([len(text.ids) for text in texts])
    ids = np.zeros((len(texts), lengths.max()), np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text.ids)] = text.ids
    return ids, np.array([text.prompt for text in texts]), lengths
