"""What a server's passes cost: seconds of a plain step by the number of requests at once (Steps).

From outside nobody can ask a server without drafts for a pass of k + 1 tokens per request. But a
pass over c requests of k + 1 tokens multiplies as many tokens as a plain step of c (k + 1)
requests, and reads the weights once, so that step stands for it. It reads more caches than the
verification would, which matters where texts are long.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil, floor
from statistics import median
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter

from decoders.errors import InputError, refuse
from workbench.engines.client import Client
from workbench.engines.load import Own
from workbench.engines.record import Query, Record
from workbench.profiles.profile import LONGEST, validated
from workbench.theory.roofline import Roof, Size

FORMAT: Final = "decoding-workbench costs"
PROMPT, TOKENS = "Once upon a time", 64  # what a server is asked for
LARGEST = 4096  # requests at once that can be asked about
LONGEST_STEP = 3600  # seconds
LARGEST_ASKED = 64  # requests at once that a server is asked for
# The least share of a request's time over which its tokens arrive; it is less behind a buffer.
SPREAD = 0.1
TOGETHER = 0.75  # the least share of the requests that are decoded at once, on average
HALF = 2  # bytes of a number in 16 bits


@dataclass(frozen=True, slots=True)
class Steps:
    """The seconds of a server's plain steps.

    Attributes:
        server: what was measured
        seconds: of a step, by the number of requests at once
        format: marks the file
        version: of the format
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    server: Annotated[str, Field(max_length=200)]
    seconds: Annotated[
        dict[
            # Those that stand for the longest drafts of so many requests, doubled up.
            Annotated[int, Field(ge=1, le=2 * LARGEST * (LONGEST + 1))],
            Annotated[float, Field(gt=0, le=LONGEST_STEP)],
        ],
        Field(min_length=1, max_length=1000),
    ]
    format: Literal["decoding-workbench costs"] = FORMAT
    version: Literal[1] = 1

    @property
    def largest(self) -> int:
        return max(self.seconds)

    def cost(self, requests: int, tokens: float) -> float | None:
        """Seconds of a pass of several tokens per request over those of a plain step.

        Between numbers of requests that were measured, seconds are interpolated. A step of more
        requests is taken to cost no less than one of fewer: where it was quicker, that was chance.

        Args:
            requests: requests at once
            tokens: tokens of each

        Returns:
            None if nothing was measured that large, or that small
        """
        known = sorted(self.seconds)
        if requests < known[0] or requests * tokens > known[-1]:
            return None
        times = np.maximum.accumulate([self.seconds[each] for each in known])
        step, whole = np.interp([requests, requests * tokens], known, times)
        return float(whole / step)

    def dumps(self) -> str:
        return json.dumps(_STEPS.dump_python(self, mode="json"), indent=1, ensure_ascii=False)


_STEPS = TypeAdapter(Steps)


def loads(data: Any) -> Steps:
    """The costs in the JSON of a file.

    Raises:
        InputError: with the first field that cannot be used
    """
    return validated(_STEPS, data, "file of costs")


def doublings(most: int) -> list[int]:
    """1, 2, 4, … up to the first that is not below `most`."""
    found = [1]
    while found[-1] < most:
        found.append(2 * found[-1])
    return found


def asked(most: int) -> list[int]:
    """The numbers of requests at once that a server is asked for."""
    return doublings(min(most, LARGEST_ASKED))


def measured(
    client: Client,
    most: int,
    doing: Callable[[int], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Steps:
    """Ask a server without drafts, at 1, 2, 4, … requests at once, as many as it decodes together.

    Beyond its slots, requests wait for each other, and a step costs what it cost before.

    Args:
        client: the server
        most: the largest number that has to be known; beyond LARGEST_ASKED nothing is asked
        doing: told the number of requests at once before they are asked
        stopped: whether to leave out what has not begun

    Raises:
        InputError: if it fails, drafts, or does not send tokens one after another
    """
    seconds: dict[int, float] = {}
    for requests in asked(most):
        if stopped():
            break
        doing(requests)
        if (step := _together(client, requests) or _together(client, requests)) is None:
            break  # also when asked again: the first time, this machine may have been busy
        seconds[requests] = step
    if not seconds:
        raise InputError(
            "Nothing was measured: it was stopped before that, or the server sent all tokens at "
            "once; ask again, or name a server that streams."
        )
    return Steps(f"{client.wire.engine.name}, {client.dialect.kind}, measured", seconds)


def _together(client: Client, requests: int) -> float | None:
    """Seconds of a step of this many requests; None if they were not decoded together."""
    queries = [Query(PROMPT, TOKENS, temperature=0.0) for _ in range(requests)]
    load = Own().make(client, queries, requests)
    refuse(
        (
            load.speculation is not None and load.speculation.drafted,
            f"Engine {client.wire.engine.name} drafts, and only plain steps tell the cost of a "
            "verification; name a server that was started without drafts.",
        )
    )
    step = median(_step(record) for record in load.records)
    return step if at_once(load.records) >= TOGETHER * requests else None


def at_once(records: Sequence[Record]) -> float:
    """The mean number of answers that were on their way while any was."""
    spans = [
        (asked + record.arrivals[0][0], asked + record.arrivals[-1][0])
        for record in records
        for asked in [datetime.fromisoformat(record.asked).timestamp()]
    ]
    whole = max(ended for _, ended in spans) - min(began for began, _ in spans)
    return sum(ended - began for began, ended in spans) / whole if whole else float(len(spans))


def _step(record: Record) -> float:
    """Seconds between two tokens of an answer."""
    refuse(
        (
            len(record.arrivals) < 3,
            f"Engine {record.engine} sent fewer than three pieces, from which nobody can tell its "
            "steps; name one that streams tokens.",
        )
    )
    (first, some), *_, (last, _) = record.arrivals
    refuse(
        (
            last - first <= SPREAD * last,
            f"Engine {record.engine} was silent for {first:.2g} s and then sent all tokens within "
            f"{last - first:.2g} s, so it or a proxy holds them back; name one that streams, or "
            "ask again if it had just started.",
        )
    )
    pieces = len(record.arrivals) - 1
    steps = pieces if record.count is None else max(pieces, record.count - (some or 1))
    return (last - first) / steps


def of_figures(bandwidth: float, tflops: float, billions: float, most: int) -> Steps:
    """The costs of a device by its figures: the roofline model, without caches.

    Args:
        bandwidth: GB/s
        tflops: dense 16-bit TFLOP/s
        billions: parameters of the target, in thousands of millions; in 16 bits
        most: the largest number of requests that has to be known

    Raises:
        InputError: if a step would take longer than LONGEST_STEP
    """
    size = Size(1e9 * billions, HALF * 1e9 * billions)
    roof = Roof(1e9 * bandwidth, 1e12 * tflops)
    name = (
        f"a device of {bandwidth:,g} GB/s and {tflops:,g} TFLOP/s with {billions:g}B parameters in "
        "16 bits, by a model without caches"
    )
    numbers = doublings(most)
    # Where computing begins to take longer than reading: straight lines lead there and on.
    knee = roof.operations * size.bytes / (2 * size.weights * roof.bandwidth)
    if knee < numbers[-1]:
        numbers = sorted({*numbers, *(n for n in (floor(knee), ceil(knee)) if n > 0)})
    seconds = {n: size.seconds(roof, n, 1) for n in numbers}
    refuse(
        (
            max(seconds.values()) > LONGEST_STEP,
            f"A step of {name} would take more than {LONGEST_STEP:,} s; give other figures, or "
            "smaller loads.",
        )
    )
    return Steps(name, seconds)
