"""From text files to token arrays: tokenizer, held-out split, near-duplicates and batches."""

import json
import lzma
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from training.saving import atomic

END = "<|endoftext|>"
END_ID = 0
SUFFIX = ".txt.xz"


@dataclass(frozen=True)
class CorpusSettings:
    """How text becomes tokens.

    Attributes:
        weights: how often each file is seen relative to its length; other files are left out
        vocab_size: number of tokens
        held_out_every: one document in this number is never trained on
        shingle: tokens, about 17 words; a training document that shares a run of this length with
            the held-out split is dropped
        tokenizer_share: characters that train the tokenizer, per compressed byte of a file and unit
            of its weight
    """

    weights: Mapping[str, float]
    vocab_size: int = 4096
    held_out_every: int = 200
    shingle: int = 24
    tokenizer_share: float = 1.0


def find_files(folder: Path, settings: CorpusSettings) -> dict[str, Path]:
    """The text files of the mixture, by name.

    Raises:
        ValueError: if the folder is missing or holds none of them
    """
    if not folder.is_dir():
        raise ValueError(
            f"The data folder {folder} does not exist; give the folder that holds the *{SUFFIX} "
            "files with --data."
        )
    files = {
        name: folder / (name + SUFFIX)
        for name in settings.weights
        if (folder / (name + SUFFIX)).is_file()
    }
    if not files:
        raise ValueError(
            f"The data folder {folder} holds none of "
            f"{', '.join(n + SUFFIX for n in settings.weights)}; give another with --data."
        )
    return files


def documents(path: Path) -> Iterator[str]:
    """The documents of one file, in order."""
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        lines: list[str] = []
        for line in file:
            if line.rstrip("\r\n") == END:
                yield "".join(lines).strip("\n")
                lines = []
            else:
                lines.append(line)
    if "".join(lines).strip():
        yield "".join(lines).strip("\n")


def is_held_out(document: str, every: int) -> bool:
    """Whether a document is held out; its own text decides, so that equal texts stay on one side.

    No order, file or tokenizer can move it."""
    return zlib.crc32(document.encode()) % every == 0


def train_tokenizer(files: Mapping[str, Path], settings: CorpusSettings) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on the training documents.

    It is lossless on any Unicode text, since every byte is a token."""

    def texts() -> Iterator[str]:
        for name, path in files.items():
            budget = settings.tokenizer_share * settings.weights[name] * path.stat().st_size
            for document in documents(path):
                if not is_held_out(document, settings.held_out_every):
                    yield document
                    budget -= len(document)
                if budget <= 0:
                    break

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        special_tokens=[AddedToken(END, special=True, normalized=False)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        pad_token=END,
        clean_up_tokenization_spaces=False,
    )


def tokenize(
    texts: Iterator[str], tokenizer: PreTrainedTokenizerFast, chunk: int = 2000
) -> np.ndarray:
    """All texts as one uint16 array, each followed by the end-of-text token."""
    parts: list[np.ndarray] = []
    while batch := [text + END for _, text in zip(range(chunk), texts, strict=False)]:
        parts += [
            np.array(e.ids, np.uint16) for e in tokenizer.backend_tokenizer.encode_batch_fast(batch)
        ]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint16)


def shingle_hashes(ids: np.ndarray, n: int) -> np.ndarray:
    """A 64-bit hash of every run of n tokens: (T,) -> (T - n + 1,)."""
    count = max(len(ids) - n + 1, 0)
    hashes = np.zeros(count, np.uint64)
    for k in range(n):  # a polynomial in an odd multiplier, modulo 2^64 by overflow
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + ids[k : k + count] + np.uint64(1)
    return hashes


def drop_near_duplicates(
    ids: np.ndarray, held_out_hashes: np.ndarray, n: int
) -> tuple[np.ndarray, int]:
    """Drop the documents that share a run of n tokens with the held-out split's sorted hashes.

    Returns:
        the ids of the documents that stay, and the number of those dropped
    """
    if not len(held_out_hashes):
        return ids, 0
    hashes = shingle_hashes(ids, n)
    nearest = held_out_hashes[
        np.searchsorted(held_out_hashes, hashes).clip(max=len(held_out_hashes) - 1)
    ]
    ends = np.flatnonzero(ids == END_ID)
    hit = np.unique(np.searchsorted(ends, np.flatnonzero(nearest == hashes)))
    keep = np.ones(len(ends), bool)
    keep[hit] = False
    return ids[np.repeat(keep, np.diff(ends, prepend=-1))], len(hit)


def prepare(data: Path, work: Path, settings: CorpusSettings) -> dict:
    """Make `tokenizer/` and `tokens/<file>.{train,held_out}.npy` under `work`, once.

    Returns:
        the report, also in `tokens/report.json`: per file the documents and tokens trained on, held
        out,
        and dropped as near-duplicates
    """
    report_path = work / "tokens" / "report.json"
    if report_path.is_file():
        return json.loads(report_path.read_text())
    files = find_files(data, settings)
    (work / "tokens").mkdir(parents=True, exist_ok=True)
    if not (work / "tokenizer").is_dir():
        with atomic(work / "tokenizer") as folder:
            train_tokenizer(files, settings).save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    every, n = settings.held_out_every, settings.shingle
    sides: dict[bool, dict[str, np.ndarray]] = {True: {}, False: {}}
    for name, path in tqdm(files.items(), desc="tokens"):
        for held, side in sides.items():
            side[name] = tokenize(
                (d for d in documents(path) if is_held_out(d, every) == held), tokenizer
            )
    held_hashes = [np.zeros(0, np.uint64)]
    for ids in sides[True].values():
        if len(ids) >= n:  # runs across an end of text are no one's text
            held_hashes.append(
                shingle_hashes(ids, n)[(sliding_window_view(ids, n) != END_ID).all(1)]
            )
    held_hashes = np.unique(np.concatenate(held_hashes))
    report = {}
    for name in tqdm(files, desc="near-duplicates"):
        kept, dropped = drop_near_duplicates(sides[False][name], held_hashes, n)
        for side, ids in (("train", kept), ("held_out", sides[True][name])):
            with atomic(work / "tokens" / f"{name}.{side}.npy") as path, open(path, "wb") as file:
                np.save(file, ids)
        report[name] = {
            "train_documents": int((kept == END_ID).sum()),
            "train_tokens": len(kept),
            "held_out_documents": int((sides[True][name] == END_ID).sum()),
            "held_out_tokens": len(sides[True][name]),
            "near_duplicates_dropped": dropped,
        }
    with atomic(report_path) as path:
        path.write_text(json.dumps(report, indent=1))
    return report


class Mixture:
    """Token arrays drawn from in proportion to weight times length.

    Args:
        arrays: (T,) token ids of each file
        weights: one weight for each file
    """

    def __init__(self, arrays: list[np.ndarray], weights: list[float]):
        pairs = [(a, w) for a, w in zip(arrays, weights, strict=True) if len(a) and w]
        self.arrays = [a for a, _ in pairs]
        mass = np.array([len(a) * w for a, w in pairs], float)
        self.shares = mass / mass.sum()
        self.starts = [
            np.concatenate([[0], np.flatnonzero(a[:-1] == END_ID) + 1]) for a in self.arrays
        ]

    @classmethod
    def load(cls, work: Path, weights: Mapping[str, float], side: str = "train") -> "Mixture":
        """The arrays that `prepare` left under `work`; `side` is "train" or "held_out"."""
        names = [n for n in weights if (work / "tokens" / f"{n}.{side}.npy").is_file()]
        arrays = [np.load(work / "tokens" / f"{n}.{side}.npy", mmap_mode="r") for n in names]
        return cls(arrays, [weights[n] for n in names])

    def batch(self, rng: np.random.Generator, rows: int, length: int) -> np.ndarray:
        """Packed text, half of its rows from the start of a document, as prompts will begin.

        Returns:
            (rows, length + 1) int64 token ids
        """
        out = np.empty((rows, length + 1), np.int64)
        for row in out:
            i = rng.choice(len(self.arrays), p=self.shares)
            ids = self.arrays[i]
            start = rng.choice(self.starts[i]) if rng.random() < 0.5 else rng.integers(len(ids))
            row[:] = np.take(ids, np.arange(start, start + length + 1), mode="wrap")
        return out
