"""The number of threads that compute: measured on the loaded pair, under the present load.

If anything else runs on the machine, and a visitor's browser is enough, as many OpenMP threads as
cores are slow: each waits for the others at every product, and one that has lost its core keeps all
of them waiting. One number serves all decoders of a run, and is measured again after an unsteady
run.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

import decoders
from decoders import InputError, ModelPair, catalog
from decoders.devices import device_of
from decoders.errors import quoted

VARIABLE = "WORKBENCH_THREADS"
DRAFT_LENGTH = 4
PROMPT, TOKENS = 8, 16  # of a trial
TRIALS = 5  # of each number of threads, in turn
HOPELESS = 2.0  # a number of threads this many times as slow as the best is not tried again
# More threads must save at least this share of a round: they are the first to suffer from other
# programs.
LEAST_GAIN = 0.03


@dataclass(frozen=True, slots=True)
class Threads:
    """The number of threads that compute, and why it is this one.

    Attributes:
        count: the number
        reason: the reason in words
    """

    count: int
    reason: str


def chosen(pair: ModelPair, environ: Mapping[str, str] | None = None) -> Threads:
    """The number of threads that makes a typical round of this pair quickest here and now.

    To be called in the thread that decodes: each thread has its own number.

    Args:
        pair: the pair
        environ: the environment; by default the process's

    Raises:
        InputError: if WORKBENCH_THREADS is not a number
    """
    text = (os.environ if environ is None else environ).get(VARIABLE, "").strip()
    if text:
        if not text.isdecimal() or int(text) < 1:
            raise InputError(
                f"{VARIABLE} must be a whole number of at least 1, not {quoted(text)}."
            )
        return Threads(int(text), f"set by {VARIABLE}")
    if not device_of(pair.target.device).on_host:
        return Threads(torch.get_num_threads(), "the models run on a GPU")
    counts = candidates(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if len(counts) == 1:
        return Threads(1, "there is one core")
    before = torch.get_num_threads()
    try:
        return quickest(counts, lambda count, limit: _round_seconds(pair, count, limit))
    finally:
        torch.set_num_threads(before)


def candidates(cores: int) -> list[int]:
    """1, 2, 4 ... and all cores."""
    return sorted({2**i for i in range(cores.bit_length()) if 2**i <= cores} | {cores})


def quickest(counts: Sequence[int], seconds: Callable[[int, float], float]) -> Threads:
    """The count with the least median of TRIALS timings, taken in turn.

    A larger count must be clearly quicker than a smaller one.

    Args:
        counts: the counts
        seconds: times one trial of a count; it may give up after the seconds that are its second
            argument. A count that took HOPELESS times as long as the best is not tried again
    """
    timings: dict[int, list[float]] = {count: [] for count in counts}
    for trial in range(TRIALS):
        for count in counts[::-1] if trial % 2 else counts:
            best = min((median(each) for each in timings.values() if each), default=math.inf)
            if not timings[count] or median(timings[count]) < HOPELESS * best:
                timings[count].append(seconds(count, HOPELESS * best))
    found = {count: median(each) for count, each in timings.items()}
    best = counts[0]
    for count in counts[1:]:
        if found[count] < (1 - LEAST_GAIN) * found[best]:
            best = count
    words = ", ".join(f"{1e3 * found[c]:.1f} ms with {c}" for c in counts)
    return Threads(best, f"measured: a plain pass and a speculative round take {words}")


def _round_seconds(pair: ModelPair, count: int, limit: float) -> float:
    """The seconds of a plain target pass plus those of a speculative round.

    The round is DRAFT_LENGTH draft passes and a verification; without a draft it is left out.
    """
    torch.set_num_threads(count)
    seconds = _median_round(pair, catalog["greedy"](), limit)
    if pair.draft is not None:
        seconds += _median_round(pair, catalog["speculative"](draft_length=DRAFT_LENGTH), limit)
    return seconds


def _median_round(pair: ModelPair, method: decoders.Method, limit: float) -> float:
    """Seconds per round, without the first two.

    The first reads the prompt, and the next may wake the workers. A round that takes longer than
    `limit` is the last.
    """
    budget = TOKENS if pair.positions is None else max(1, min(TOKENS, pair.positions - PROMPT))
    options: dict[str, Any] = {"max_new_tokens": budget, "temperature": 0.0, "ignore_eos": True}
    rounds, began = [], time.perf_counter()
    with closing(decoders.stream(pair, [0] * PROMPT, method, **options)) as stream:
        for event in stream:
            if event.round is not None:
                rounds.append(time.perf_counter() - began)
                if rounds[-1] > (limit if len(rounds) > 2 else 4 * limit):
                    break
                began = time.perf_counter()
    return median(rounds[2:] or rounds)
