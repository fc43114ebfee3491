"""Recorded passes of one model: which recording serves a pass, when it is made, and when the plain pass takes its place."""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

import torch
from torch import Tensor

from decoders.engine.fusion import fused
from decoders.engine.packing import Packing
from decoders.engine.recorded import CannotRecord, Recorder, as_function, in_general
from decoders.errors import first_line

log = logging.getLogger("decoders")

# The numbers of tokens that share one recording: linear layers may multiply in another way after 8 and after 32 (`linear.FEW`), and a
# long prompt has nothing to gain.
SPANS = range(1, 2), range(2, 9), range(9, 33), range(33, 257)
INPUTS = "input_ids", "position_ids", "wanted", "packing"
VERSION = attrgetter("_version")
Pass = Callable[..., Tensor]  # called with INPUTS by name; returns logits (wanted, V)


class Recorded:
    """Passes of up to 256 tokens replayed from recordings, others as they are.

    plain     the pass, run as it is
    example   the INPUTS of a pass of so many tokens of which so many want logits
    weights   the weights as they are now: a recording holds views and copies of them, and is made again if they change between runs
    name      of the model, for the warning if it cannot be recorded;   most  tokens that it can see, or None
    A recording takes a few passes of few tokens, so each is made when first needed, in the thread that needs it; others wait for it.
    """

    def __init__(
        self,
        plain: Pass,
        example: Callable[[int, int], Sequence],
        weights: Callable[[], list[Tensor]],
        name: str,
        most: int | None,
    ):
        self.plain, self.example, self.weights, self.name = plain, example, weights, name
        spans = [range(s.start, min(s.stop, (most or s.stop) + 1)) for s in SPANS]
        self._spans = [span for span in spans if span and (span[0] == 1 or len(span) > 3)]
        self._passes: dict[range, Pass] = {}
        self._weights: list[Tensor] = []
        self._stamps: tuple = ()
        self._recording = threading.Lock()
        self.failed = False  # then all passes run as they are

    def __call__(self, input_ids: Tensor, position_ids: Tensor, wanted: Tensor, packing: object) -> Tensor:
        tokens = input_ids.shape[1]
        span = next((span for span in self._spans if tokens in span), None)
        if span is None:
            return self.plain(input_ids=input_ids, position_ids=position_ids, wanted=wanted, packing=packing)
        run = self._passes.get(span) or self._record(span)
        return run(input_ids, position_ids, wanted, packing, tokens, len(wanted))

    def follow(self) -> None:
        """Forget the recordings if the weights are others now. To be called when a run begins: looking takes as long as ten operators."""
        weights = self.weights()
        if (stamps := stamps_of(weights)) != self._stamps:
            with self._recording:
                self._passes, self._weights, self._stamps, self.failed = {}, weights, stamps, False

    def _record(self, span: range) -> Pass:
        with self._recording:
            if span not in self._passes:
                try:
                    self._passes[span] = self._made(span)
                except Exception as error:  # foreign code can do anything that a recorder does not expect
                    reason = str(error) if isinstance(error, CannotRecord) else first_line(error)
                    log.warning("The passes of the %s are not recorded (%s); they take longer.", self.name, reason)
                    self.failed = True
                    self._passes |= dict.fromkeys(self._spans, self._as_it_is)
            return self._passes[span]

    def _as_it_is(self, input_ids: Tensor, position_ids: Tensor, wanted: Tensor, packing: Packing, *_: int) -> Tensor:
        return self.plain(input_ids=input_ids, position_ids=position_ids, wanted=wanted, packing=packing)

    def _made(self, span: range) -> Pass:
        """The recording of passes of this span. Raises CannotRecord if it would not give what the pass gives."""
        low, last = span[0], span[-1]
        sizes = [(low + 1, 2), (low + 3, 2), (low + 3, 3)] if low > 1 else [(1, 1)] * 3
        recorders: list[Recorder] = []
        answers = []
        for size in sizes:
            inputs = dict(zip(INPUTS, self.example(*size), strict=True))
            if not recorders:
                self.plain(**inputs)  # what a model or a layer prepares at its first pass is no part of a recording
            with Recorder(inputs) as recorder:
                logits = self.plain(**inputs)
            recorders.append(recorder)
            answers.append(recorder.value_of(logits))
        steps = in_general([recorder.steps for recorder in recorders], sizes)
        try:
            return self._agreeing(as_function(*fused(steps, answers[0]), INPUTS), (low, last))
        # A model that rounds on its way rounds something else there; and parts that are turned may be unequal.
        except (CannotRecord, RuntimeError):
            return self._agreeing(as_function(steps, answers[0], INPUTS), (low, last))

    def _agreeing(self, replay: Pass, sizes: Iterable[int]) -> Pass:
        """The replay. Raises CannotRecord unless passes of so many tokens give what plain ones give."""
        for tokens in set(sizes):
            given = self.example(tokens, 1 + tokens // 3)
            agree(replay(*given, tokens, 1 + tokens // 3), self.plain(**dict(zip(INPUTS, given, strict=True))))
        return replay


def stamps_of(weights: Sequence[Tensor]) -> tuple:
    """What differs after any change of these weights (while they are kept, no other tensor has their ids)."""
    places = list(map(id, weights)), list(map(Tensor.data_ptr, weights))
    try:
        return *places, sum(map(VERSION, weights))  # each of which only grows
    except RuntimeError:  # tensors made in inference mode count none, and have no copies that would be out of date
        return places


def agree(replayed: Tensor, plain: Tensor) -> None:
    """Raise CannotRecord unless two passes gave the same logits, but for the order in which sums are taken."""
    allowed = 100 * torch.finfo(plain.dtype).eps * plain[plain.isfinite()].abs().max()
    if not torch.allclose(replayed, plain, rtol=0, atol=float(allowed), equal_nan=True):
        raise CannotRecord("a replay gave other logits")
