"""What a batch experiment measured, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from statistics import fmean
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Way:
    """How requests share a batch (ems-sd.txt §3).

    padding   what the engine pads, in the words of `decoders.generate`
    static    a batch is decoded to its end before the next one begins; else a finished request's place goes to the next at once
    """

    label: str
    help: str
    padding: str
    static: bool = True


WAYS = {
    "vanilla": Way("vanilla", "pads inputs and caches to the longest of the batch, as a framework with aligned tensors must", "both"),
    "unpadded_kv": Way("unpadded cache", "every request's cache has its own length; inputs are padded", "inputs"),
    "unpadded_inputs": Way("unpadded inputs", "the tokens of all requests are laid end to end; caches are padded", "kv"),
    "unpadded": Way("both unpadded", "neither is padded (EMS-SD)", "none"),
    "dynamic": Way("both, dynamic", "neither is padded, and a finished request's place goes to the next one at once", "none", False),
}  # fmt: skip
ALONE = "unpadded"  # the one way of a batch of one: there is nothing to pad and no place to give away
BASELINE = "greedy"


def ways_at(size: int, ways: Sequence[str]) -> list[str]:
    return list(ways) if size > 1 else [ALONE]


def baseline_way(way: str) -> str:
    """Greedy decoding feeds every request one token, so that the static ways are one; dynamic batches are held against dynamic ones."""
    return ALONE if WAYS[way].static else way


def way_label(decoder: str, size: int, way: str) -> str:
    """What a cell's way is called: at batch size 1 there is one, and for the baseline all static ways are one."""
    if size == 1:
        return "alone"
    if decoder == BASELINE:
        return "static" if WAYS[way].static else "dynamic"
    return WAYS[way].label


def batches(items: Sequence[T], size: int) -> list[list[T]]:
    """The items in batches of exactly `size`: the last one is filled up from the start."""
    starts = range(0, len(items), size)
    return [list(islice(cycle(items), start, start + size)) for start in starts]


@dataclass(frozen=True, slots=True)
class Cell:
    """One decoder over the whole prompt set at one batch size in one way.

    seconds, new_tokens   all of it, reading the prompts included
    decode_seconds, decode_tokens   without each batch's first round, which also reads the prompts: what the paper counts (§4.1);
                    None where prompts are read beside the decoding of others (dynamic batches, chunked prompts, a memory budget)
    passes          rounds that the batches took together, without their first;   None likewise
    fed_tokens      tokens the target scored in these rounds: for each request and round its last token and its draft (for beams, draws)
    padded_tokens, padded_rows   computed, and kept in caches, only to fill up, by both models
    padding_ratio   pads / longest acceptance, mean over the rounds and requests of the target (eq. 10), None where not padded
    at_once         requests in flight at most: fewer than `batch_size` where a memory budget lets some wait
    peak_cache_bytes   most bytes of one model's cache that a single request had in use
    differing       prompts whose tokens are not those of the first cell of `reference`, a decoder of the same law
    errors          one sentence for each request that failed
    """

    decoder: str
    batch_size: int
    way: str
    repeat: int
    seconds: float
    new_tokens: int
    decode_seconds: float | None
    decode_tokens: int | None
    passes: int | None
    fed_tokens: int
    padded_tokens: int
    padded_rows: int
    padding_ratio: float | None
    at_once: int
    peak_cache_bytes: int
    differing: int
    reference: str
    errors: list[str]

    @property
    def tokens_per_second(self) -> float:
        return self.new_tokens / self.seconds

    @property
    def decode_speed(self) -> float | None:
        """Tokens/s with the reading of prompts left out."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else None


@dataclass(frozen=True)
class BatchRun:
    """One experiment.

    settings      as `BatchSettings.to_json` has them;   environment  what it ran on
    prompt        the name of the set of prompts;   prompt_tokens  the length of each
    acceptances   for each decoder, prompt and round the tokens that the output gained (tau of ems-sd.txt): they do not depend on the
                  batch, so they are kept once
    cancelled     whether it was stopped before its end
    """

    created: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    prompt: str
    prompt_tokens: list[int]
    cells: list[Cell] = field(default_factory=list)
    acceptances: dict[str, list[list[int]]] = field(default_factory=dict)
    cancelled: bool = False

    @property
    def decoders(self) -> list[str]:
        """Those that have cells, the baseline left out."""
        return list(dict.fromkeys(c.decoder for c in self.cells if c.decoder != BASELINE))

    @property
    def sizes(self) -> list[int]:
        return sorted({c.batch_size for c in self.cells})

    def ways(self, decoder: str, decoding: bool = False) -> list[str]:
        """The ways that were measured; `decoding` leaves out those without a figure that leaves out the reading of prompts."""
        found = {c.way for c in self.cells if c.decoder == decoder and not (decoding and c.decode_seconds is None)}
        return [way for way in WAYS if way in found]

    def find(self, decoder: str, size: int, way: str) -> list[Cell]:
        """The cells of all repeats; at batch size 1 every way is one."""
        way = way if size > 1 else ALONE
        return [c for c in self.cells if (c.decoder, c.batch_size, c.way) == (decoder, size, way)]

    def speed(self, decoder: str, size: int, way: str, decoding: bool = False) -> float | None:
        """Tokens/s, mean over repeats; `decoding` leaves the reading of prompts out. None where there is no such figure."""
        speeds = [c.decode_speed if decoding else c.tokens_per_second for c in self.find(decoder, size, way)]
        return fmean(speeds) if speeds and None not in speeds else None

    def speed_up(self, decoder: str, size: int, way: str, decoding: bool = False) -> float | None:
        """The same over greedy decoding's at the same batch size."""
        own, base = self.speed(decoder, size, way, decoding), self.speed(BASELINE, size, baseline_way(way), decoding)
        return own / base if own and base else None

    def mean_acceptances(self, decoder: str) -> list[float]:
        """Each sample's mean acceptance length (ems-sd.txt figure 5a, d)."""
        return [fmean(rounds) for rounds in self.acceptances[decoder] if rounds]

    def least_acceptance(self, decoder: str, size: int) -> float:
        """The least mean acceptance length of a static batch's samples, mean over the batches (figure 5b, e)."""
        return fmean(min(batch) for batch in batches(self.mean_acceptances(decoder), size))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "BatchRun":
        return BatchRun(**{**data, "cells": [Cell(**cell) for cell in data["cells"]]})
