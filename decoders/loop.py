"""The loop (Loop): any number of requests decode at once and share the passes of each model."""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain

import torch

from decoders.costs import count
from decoders.engine.protocols import Passes
from decoders.errors import ModelError
from decoders.passing import foreseen, penalised, read, rounds_made, shares
from decoders.trace import Round
from decoders.turn import Turn

PATIENCE = 100  # passes


class Loop(AbstractContextManager["Loop"]):
    """Decodes turns that come and go.

    All turns that wait for one model share its passes, whatever their decoders and settings are. A
    turn gets the tokens that it gets alone. `close`, or the end of a `with` block, gives back all
    rows.

    Args:
        engines: the passes of each model, by the name that asks use for it
        max_batch: the most active turns; the others, and those without room in the engines, wait
        prefill_chunk: the most prompt tokens of a turn in one pass
        static: whether the next turns begin only when all active ones have ended
        patience: drafts go first, so that all active turns share the target's pass, until one turn
            has waited for this many passes
    """

    def __init__(
        self,
        engines: Mapping[str, Passes],
        *,
        max_batch: int | None = None,
        prefill_chunk: int | None = None,
        static: bool = False,
        patience: int = PATIENCE,
    ):
        self.engines, self.max_batch, self.prefill_chunk = engines, max_batch, prefill_chunk
        self.static, self.patience = static, patience
        self.queue, self.active = deque[Turn](), list[Turn]()

    def add(self, turn: Turn) -> None:
        """Put a turn in line; it begins in one of the next steps."""
        self.queue.append(turn)

    def cancel(self, turn: Turn) -> None:
        """End a turn with the text that it has.

        Raises:
            ValueError: if the turn is not here, or no longer
        """
        if turn in self.active:
            self._end(turn)
        else:
            self.queue.remove(turn)
            turn.decoding.close()
        turn.request.finished = "cancelled"

    @property
    def turns(self) -> list[Turn]:
        """All turns, active or in line."""
        return [*self.active, *self.queue]

    def step(self) -> list[tuple[Turn, Round | None]]:
        """Make one pass, and perhaps more in advance.

        Returns:
            (turn, round) for each round that it completed, and (turn, None) for each turn that is
                over
        """
        self._begin()
        if not self.active:
            return []
        model = self._next()
        asking = [turn for turn in self.active if turn.waiting.model == model]
        for turn in self.active:
            turn.waited = 0 if turn.waiting.model == model else turn.waited + 1
        with torch.inference_mode():
            if not (len(self.active) == 1 and self._rounds(*asking)):
                self._forward(asking, model)
        happened: list[tuple[Turn, Round | None]] = []
        for turn in asking:
            happened += [(turn, entry) for entry in turn.rounds]
            turn.rounds.clear()
            if turn.over:
                self._end(turn)
                happened.append((turn, None))
        return happened

    def close(self) -> None:
        for turn in self.turns:
            turn.decoding.close()
        for turn in self.active:  # those in line have no rows yet
            self._release(turn)
        self.active.clear()
        self.queue.clear()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        if self.static and self.active:
            return
        while self.queue and (self.max_batch is None or len(self.active) < self.max_batch):
            turn = self.queue[0]
            if not all(
                engine.admit(turn.request.tree, turn.rows) for engine in self._engines(turn)
            ):
                self._release(turn)
                return
            self.active.append(self.queue.popleft())
            turn.start(heeds=any(engine.reads for engine in self._engines(turn)))

    def _next(self) -> str:
        if len(self.active) == 1:
            return self.active[0].waiting.model
        longest = max(self.active, key=lambda turn: turn.waited)
        if longest.waited >= self.patience:
            return longest.waiting.model
        asked = (turn.waiting.model for turn in self.active)
        return next((model for model in asked if model != "target"), "target")

    def _engines(self, turn: Turn) -> list[Passes]:
        return [self.engines[model] for model in turn.models if model in self.engines]

    def _end(self, turn: Turn) -> None:
        self.active.remove(turn)
        turn.decoding.close()
        self._release(turn)

    def _release(self, turn: Turn) -> None:
        for engine in self._engines(turn):
            engine.release(turn.request.tree)

    def _rounds(self, turn: Turn) -> bool:
        """Let a turn go on by rounds made in advance; False if there are none."""
        ask, made = turn.waiting, rounds_made(turn, self.engines)
        if not made:
            return False
        turn.request.ledger.charge_pass("target", 0, shares(made))
        try:
            turn.answer((), foreseen(turn, made, self.engines))
        except ModelError as error:
            fail(turn, error)
        return bool(turn.rounds or turn.drawn or turn.over) or turn.waiting.model != ask.model

    def _forward(self, asking: Sequence[Turn], model: str) -> None:
        for turn in asking:
            turn.wake()
        engine = self.engines[model]
        heads = [
            other
            for role, other in self.engines.items()
            if model == "target" and other.reads and any(role in turn.models for turn in asking)
        ]
        layers = tuple(
            dict.fromkeys(
                chain(*(turn.waiting.features for turn in asking), *(head.reads for head in heads))
            )
        )
        if engine.ahead:
            for turn in asking:
                engine.expect(turn.request.tree, turn.outlook)
        wants = [(turn.request.tree, turn.missing()) for turn in asking]
        answers = engine.run(wants, self.prefill_chunk, layers)
        rows = penalised(answers, asking, wants)
        ahead = any(answer.further for answer in answers)
        found = answers[0].found if rows is answers[0].rows else None
        readings = read(rows, asking, ahead, found)
        for turn, (tree, nodes), answer in zip(asking, wants, answers, strict=True):
            if answer.features is not None:
                for head in heads:
                    if head in self._engines(turn):
                        head.learn(tree, answer.features.of(layers, head.reads))
            count(turn, model, engine, answer, len(asking))
            further = {model: answer.further} if answer.further else {}
            turn.request.ledger.charge_pass(model, answer.weight_bytes, shares(further))
            if answer.part is None:
                continue
            if not readings.sound(answer.part):
                fail(turn, bad_logits(engine.model.name, turn))
                continue
            answered = readings.of(answer.part, turn.held)
            if turn.waiting.features and answer.features is not None:
                states = answer.features.of(layers, turn.waiting.features)
                for node, reading in zip(nodes, answered, strict=True):
                    reading.features = states.at(node)
            try:
                turn.answer(answered, foreseen(turn, further, self.engines, readings, len(asking)))
            except ModelError as error:
                fail(turn, error)


def fail(turn: Turn, error: ModelError) -> None:
    """Let an error end this turn alone."""
    # A traceback would keep the cache alive together with the result.
    turn.error = error.with_traceback(None)
    turn.decoding.close()


def bad_logits(name: str, turn: Turn) -> ModelError:
    """The error of a pass whose logits make no distribution."""
    place = turn.request.tree.new_length(turn.request.answer) + 1
    return ModelError(
        f"The {name} gave logits that are not numbers at token {place}; check its weights and its "
        "dtype."
    )


def drive(
    turns: Sequence[Turn],
    engines: Mapping[str, Passes],
    *,
    max_batch: int | None = None,
    prefill_chunk: int | None = None,
    static: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
) -> Generator[tuple[Turn, Round | None], None, None]:
    """Decode all turns, and give back all cache rows at the end, even if the generator is closed.

    When a turn ends, the next one takes its place; in static batches, when all have ended.

    Args:
        turns: the turns, in the order in which they begin
        engines: see `Loop`, as for `max_batch`, `prefill_chunk` and `static`
        cancelled: called before every pass; if it returns True, all turns end

    Yields:
        (turn, round) for each round as it is committed, and (turn, None) when a turn is over
    """
    with Loop(engines, max_batch=max_batch, prefill_chunk=prefill_chunk, static=static) as loop:
        for turn in turns:
            loop.add(turn)
        while loop.turns:
            if cancelled():
                for turn in loop.turns:
                    loop.cancel(turn)
                    yield turn, None
                return
            yield from loop.step()
