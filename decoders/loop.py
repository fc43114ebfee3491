"""The loop: drives any number of requests at once, and packs all that wait for the same model into one forward pass."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from decoders.engine.model import Engine
from decoders.errors import ModelError
from decoders.request import Ask, Request
from decoders.settings import Decoding
from decoders.shapes import Logits
from decoders.trace import Round


@dataclass(eq=False)
class Turn:
    """A request while it is being decoded.

    decoding   its generator;   rows  cache rows to reserve for it
    waiting    the ask that it waits for;   rounds  committed, not yet yielded
    error      why it failed, while the others continue
    """

    index: int
    request: Request
    decoding: Decoding
    rows: int
    waiting: Ask | None = None
    error: ModelError | None = None
    rounds: deque[Round] = field(default_factory=deque)

    @property
    def over(self) -> bool:
        return self.request.finished is not None or self.error is not None

    def resume(self, answer: Logits | None) -> None:
        """Continue the decoder until it needs a forward pass or has finished; the rounds that it commits meanwhile are queued."""
        with torch.inference_mode():
            while not self.over:
                item = self.decoding.send(answer)
                answer = None
                if isinstance(item, Round):
                    self.rounds.append(item)
                elif self.request.missing(item):
                    self.waiting = item
                    return
                else:
                    answer = self.request.answer_to(item)
        self.waiting = None
        self.decoding.close()


def drive(
    turns: Sequence[Turn],
    engines: Mapping[str, Engine],
    *,
    max_batch: int | None = None,
    prefill_chunk: int | None = None,
    static: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Turn, Round | None]]:
    """Decode all turns. Yields (turn, round) for each round as it is committed, and (turn, None) when a turn is over.

    At most `max_batch` turns are active, as far as the engines have room for them. When one ends the next takes its place at once; in
    `static` batches, when all have ended. `cancelled` is called before every pass. However this ends, also if the generator is
    closed, all cache rows are given back.
    """
    queue, active = deque(turns), list[Turn]()
    try:
        while queue or active:
            if cancelled():
                for turn in (*active, *queue):
                    turn.request.finished = "cancelled"
                    turn.decoding.close()
                    yield turn, None
                return
            places = 0 if static and active else (max_batch or len(turns)) - len(active)
            while queue and places > 0 and _admit(queue[0], engines):
                turn = queue.popleft()
                active.append(turn)
                places -= 1
                turn.request.note_time(None)
                turn.resume(None)
            # Drafts first, so that all active turns share the target's pass.
            model = "draft" if any(t.waiting.model == "draft" for t in active) else "target"
            asking = [t for t in active if t.waiting.model == model]
            _forward(asking, engines[model], model, prefill_chunk)
            for turn in asking:
                while turn.rounds:
                    yield turn, turn.rounds.popleft()
                if turn.over:
                    active.remove(turn)
                    _release(turn.request, engines)
                    yield turn, None
    finally:
        for turn in active:
            turn.decoding.close()
            _release(turn.request, engines)


def _admit(turn: Turn, engines: Mapping[str, Engine]) -> bool:
    if all(engine.admit(turn.request.tree, turn.rows) for engine in engines.values()):
        return True
    _release(turn.request, engines)
    return False


def _release(request: Request, engines: Mapping[str, Engine]) -> None:
    for engine in engines.values():
        engine.release(request.tree)


def _forward(asking: Sequence[Turn], engine: Engine, model: str, chunk: int | None) -> None:
    """One pass for these turns; each that gets its logits continues to its next ask."""
    wants = [(t.request.tree, t.request.missing(t.waiting)) for t in asking]
    answers = engine.run(wants, chunk)
    for turn, (_, nodes), answer in zip(asking, wants, answers, strict=True):
        request, counts = turn.request, turn.request.counts
        if model == "target":
            counts.target_passes += answer.passes
        else:
            counts.draft_passes += answer.passes
        counts.bytes_read += answer.cache_bytes + answer.weight_bytes / len(asking)
        if waste := answer.waste:
            counts.padded_tokens += waste.tokens
            counts.padded_rows += waste.rows
            if model == "target" and waste.longest_growth > 0:
                counts.padding_ratios.append(waste.rows / waste.longest_growth)
        counts.peak_rows = max(counts.peak_rows, engine.rows_of(request.tree))
        counts.peak_cache_bytes = max(counts.peak_cache_bytes, answer.cache_bytes)
        if answer.logits is None:
            counts.prefill_calls += 1
            request.note_time(model)
            continue
        if model == "target":
            counts.target_calls += 1
        else:
            counts.draft_calls += 1
        try:
            if not answer.sound:
                step = request.tree.new_length(request.answer) + 1
                raise ModelError(
                    f"The {engine.model.name} gave logits that are not numbers at token {step}; check its weights and its dtype."
                )
            request.known[model].update(zip(nodes, answer.logits, strict=True))
            request.note_time(model)
            turn.resume(request.answer_to(turn.waiting))
        except ModelError as error:
            turn.error = error.with_traceback(None)  # a traceback would keep the cache alive with the result
            turn.decoding.close()
