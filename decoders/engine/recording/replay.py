"""The recorded passes of one model (Recorded).

They are made when first needed. Compiled kernels carry them out if they know all of their
operators; else the operators are replayed one by one. A plain pass takes the place of one that
cannot be recorded.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from decoders.engine.protocols import Layers
from decoders.engine.recording.function import as_function
from decoders.engine.recording.recorder import CannotRecord, Recorder, Step, Value, in_general
from decoders.errors import first_line

LONGEST = 192  # tokens: longer prompts gain nothing
INPUTS = "input_ids", "position_ids", "wanted", "packing"
# Takes INPUTS by name and `features`, Layers; returns logits (wanted, V) and for each layer hidden
# states (tokens, H).
Pass = Callable[..., tuple[torch.Tensor, ...]]


class Recorded:
    """Replays passes of up to 192 tokens from recordings, and runs longer ones plainly.

    With kernels the limit is divided by the number of threads, of which they use one.

    Kernels take one recording for passes of any size. Without them there is one for a single token
    and one for more. Each takes a few passes of few tokens. So it is made when it is first needed,
    by the thread that needs it, while other threads wait.

    Args:
        plain: the pass itself
        example: makes the INPUTS of a pass, given its number of tokens and how many of them want
            logits
        name: the model's name, for the warning if it cannot be recorded
        most: the most tokens that the model can see, or None
        lower: makes one call of kernels of a recording and its answers; raises CannotRecord if
            kernels do not do all of it
        also: names of further inputs of a pass, which follow the INPUTS in an example

    Attributes:
        failed: whether recording has failed, so that all passes run plainly
        operators: why operators are replayed one by one; "" while kernels carry out the passes
    """

    def __init__(
        self,
        plain: Pass,
        example: Callable[[int, int], Sequence],
        name: str,
        most: int | None,
        lower: Callable[..., Pass],
        also: tuple[str, ...] = (),
    ):
        self.plain, self.example, self.name = plain, example, name
        self.lower, self.inputs = lower, (*INPUTS, *also)
        edges = [min(edge, most or edge) + 1 for edge in (0, 1, LONGEST)]
        spans = [range(*ends) for ends in pairwise(edges)]
        self._spans = [span for span in spans if span and (span[0] == 1 or len(span) > 3)]
        self._passes: dict[tuple[range, Layers], Pass] = {}
        self._recording = threading.Lock()
        self.failed, self.operators = False, ""

    def __call__(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        wanted: torch.Tensor,
        packing: object,
        features: Layers = (),
        **also: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        tokens = input_ids.shape[1]
        inputs = (input_ids, position_ids, wanted, packing, *also.values())
        span = next((span for span in self._spans if tokens in span), None)
        if span is None:
            return self._as_it_is(features, *inputs)
        run = self._passes.get((span, features)) or self._record(span, features)
        if self._shared(tokens):
            return self._as_it_is(features, *inputs)
        return run(*inputs, tokens, len(wanted))

    def made(self, tokens: int) -> Pass | None:
        """The recording that carries out a pass of so many tokens without features, if any does."""
        span = next((span for span in self._spans if tokens in span), None)
        if span is None or self._shared(tokens):
            return None
        return self._passes.get((span, ()))

    def _shared(self, tokens: int) -> bool:
        """Whether several threads share such a pass better than kernels do."""
        return not self.operators and tokens * torch.get_num_threads() > LONGEST

    def forget(self) -> None:
        """Forget the recordings, which hold views and copies of weights that have changed."""
        with self._recording:
            self._passes, self.failed, self.operators = {}, False, ""

    def _record(self, span: range, features: Layers) -> Pass:
        with self._recording:
            if (span, features) not in self._passes:
                try:
                    self._passes |= self._made(span, features)
                # The model's code can do anything that a recorder does not expect.
                except Exception as error:
                    run_plainly(self.name, "recorded", first_line(error))
                    self.failed = self.failed or not features
                    self._passes |= {
                        (each, features): partial(self._as_it_is, features) for each in self._spans
                    }
            return self._passes[span, features]

    def _as_it_is(self, features: Layers, *inputs: Any) -> tuple[torch.Tensor, ...]:
        # A replay takes two more numbers, which are left out here.
        return self.plain(**dict(zip(self.inputs, inputs, strict=False)), features=features)

    def _made(self, span: range, features: Layers) -> dict[tuple[range, Layers], Pass]:
        """Record passes of this span, and of all with kernels.

        Raises CannotRecord if a replay gives other results.
        """
        # Preparations that a model or a layer makes in its first pass are not recorded.
        self._as_it_is(features, *self.example(min(3, span[-1]), 1))
        if self._spans[-1][-1] >= 5 and not self.operators:
            try:
                lowered = self.lower(*self._in_general([(3, 2), (5, 2), (5, 3)], features))
                self._agreeing(lowered, {1, 2, self._spans[-1][-1]}, features)
                return {(each, features): lowered for each in self._spans}
            except CannotRecord as error:
                self.operators = first_line(error)
                logging.getLogger("decoders").info(
                    "The %s is replayed operator by operator: %s.", self.name, self.operators
                )
        low = span[0]
        sizes = [(low + 1, 2), (low + 3, 2), (low + 3, 3)] if low > 1 else [(1, 1)] * 3
        replay = as_function(*self._in_general(sizes, features), self.inputs)
        return {(span, features): self._agreeing(replay, {low, span[-1]}, features)}

    def _in_general(
        self, sizes: Sequence[tuple[int, int]], features: Layers
    ) -> tuple[list[Step], tuple[Value, ...]]:
        recordings = [self._noted(size, features) for size in sizes]
        return in_general([recorded for recorded, _ in recordings], sizes), recordings[0][1]

    def _noted(
        self, size: tuple[int, int], features: Layers
    ) -> tuple[list[Step], tuple[Value, ...]]:
        inputs = dict(zip(self.inputs, self.example(*size), strict=True))
        with Recorder(inputs) as recorder:
            outputs = self.plain(**inputs, features=features)
        return recorder.steps, tuple(map(recorder.value_of, outputs))

    def _agreeing(self, replay: Pass, sizes: Iterable[int], features: Layers) -> Pass:
        """Return the replay. Raises CannotRecord unless plain passes of these sizes agree."""
        for tokens in set(sizes):
            inputs = self.example(tokens, 1 + tokens // 3)
            for ours, plain in zip(
                replay(*inputs, tokens, 1 + tokens // 3),
                self._as_it_is(features, *inputs),
                strict=True,
            ):
                agree(ours, plain)
        return replay


def run_plainly(name: str, done: str, why: str) -> None:
    """Warn that passes are not made quicker.

    Args:
        name: the model's name
        done: what is not done with them: "recorded" or "compiled"
        why: the reason
    """
    logging.getLogger("decoders").warning(
        "The passes of the %s are not %s (%s); they take longer.", name, done, why
    )


def agree(replayed: torch.Tensor, plain: torch.Tensor) -> None:
    """Raise CannotRecord unless two passes gave the same numbers, apart from the order of sums."""
    allowed = 100 * torch.finfo(plain.dtype).eps * plain[plain.isfinite()].abs().max()
    if not torch.allclose(replayed, plain, rtol=0, atol=float(allowed), equal_nan=True):
        raise CannotRecord("a replay gave other numbers")
