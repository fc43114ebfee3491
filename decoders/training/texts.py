"""The texts that a head learns from: files, and what the target itself writes."""

import lzma
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from decoders.engine.loading.pair import ModelPair
from decoders.errors import InputError
from decoders.generate import generate

END = "<|endoftext|>"
HELD_OUT = 100  # one document in this many is never trained on
PART = 128  # texts that the target writes at a time
# The sampling of every second part: greedy decoding, and draws.
SAMPLED = {"temperature": 0.0}, {"temperature": 1.0, "top_p": 0.95}


def read_texts(files: Sequence[Path]) -> Iterator[str]:
    """The documents of text files, plain or as .xz, which a line `<|endoftext|>` separates.

    Raises:
        InputError: if a file cannot be read
    """
    for file in files:
        try:
            with (lzma.open if file.suffix == ".xz" else open)(file, "rt", encoding="utf-8") as f:
                yield from (text.strip("\n") for text in f.read().split(END) if text.strip())
        except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
            raise InputError(
                f"The text file {file} cannot be read ({error}); name files of plain text."
            ) from None


def tokens_of(pair: ModelPair, texts: Iterable[str], least: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of texts, each with its end token: those to train on, and those held out.

    A text's own characters decide on which side it is. If too few are held out, the end of the rest
    takes their place.

    Args:
        pair: the target with its tokenizer
        texts: the texts
        least: the least tokens of each side

    Raises:
        InputError: if there is too little text
    """
    parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    end = sorted(pair.end_tokens)[:1]
    for text in texts:
        read = [*pair.tokenizer(text, add_special_tokens=False).input_ids, *end]
        parts[zlib.crc32(text.encode()) % HELD_OUT == 0].append(np.array(read, np.int32))
    ids, held_out = (np.concatenate(part) if part else np.zeros(0, np.int32) for part in parts)
    if len(held_out) < least:
        tail = max(least, len(ids) // HELD_OUT)
        ids, held_out = ids[:-tail], ids[-tail:]
    if len(ids) < least:
        raise InputError(
            f"The text files hold too little text; give at least {2 * least} tokens of it, better "
            "a million."
        )
    return ids, held_out


def rows_of(ids: np.ndarray, rng: np.random.Generator, rows: int, length: int) -> torch.Tensor:
    """Stretches of a text that begin anywhere, (rows, length)."""
    starts = rng.integers(0, len(ids) - length + 1, rows)
    return torch.from_numpy(np.stack([ids[i : i + length] for i in starts])).long()


def write_own(
    pair: ModelPair, ids: np.ndarray, folder: Path, texts: int, length: int, seed: int
) -> Iterator[int]:
    """Let the target write texts, at the temperatures at which heads are used.

    Parts that are in the folder stay, so the work resumes after a kill.

    Args:
        pair: its target writes
        ids: its tokens begin the texts
        folder: gets a file for each part
        texts: how many
        length: tokens of a text, its beginning included
        seed: of the first text

    Yields:
        how many are written
    """
    for number, begin in enumerate(range(0, texts, PART)):
        file, count = folder / f"own-{number:04}.npy", min(PART, texts - begin)
        if not file.is_file():
            rng = np.random.default_rng([seed, number])
            prompts = rows_of(ids, rng, count, max(1, length // 8)).tolist()
            results = generate(
                pair,
                prompts,
                "multinomial",
                max_new_tokens=length - max(1, length // 8),
                max_batch=32,
                seed=seed + begin,
                **SAMPLED[number % 2],
            )
            each = [[*p, *r.tokens] for p, r in zip(prompts, results, strict=True)]
            part = file.with_suffix(".part.npy")
            np.save(part, np.concatenate([np.array(text, np.int32) for text in each]))
            os.replace(part, file)
        yield begin + count


def own_text(folder: Path) -> np.ndarray:
    """The tokens that the target has written.

    Raises:
        InputError: if a file is broken
    """
    files = sorted(folder.glob("own-????.npy"))
    try:
        return np.concatenate([np.load(file) for file in files]) if files else np.zeros(0, np.int32)
    except (OSError, ValueError) as error:
        raise InputError(
            f"The target's own texts in {folder} are broken ({error}); remove the folder."
        ) from None
