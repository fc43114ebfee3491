"""The loop: drives any number of requests at once, and packs all that wait for the same model into one forward pass."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from decoders.distribution import Distribution
from decoders.engine.answer import Answer, Wants
from decoders.engine.engines import Passes
from decoders.errors import ModelError
from decoders.penalties import applied
from decoders.reading import Reading, Readings, held
from decoders.request import Ask, Drawn, Request
from decoders.settings import Decoding
from decoders.shapes import Logits, NodeId, TokenId
from decoders.trace import Round

ALTERNATIVES = 5


@dataclass(eq=False)
class Turn:
    """A request while it is being decoded.

    decoding   its generator;   rows  cache rows to reserve for it
    waiting    the ask that it waits for, once it has started;   drawn  what it has of a chain so far, which `draw` continues
    known      the readings of its live nodes, by model
    rounds     committed, not yet yielded;   error  why it failed, while the others continue
    """

    index: int
    request: Request
    decoding: Decoding
    rows: int = 0
    waiting: Ask = field(init=False, repr=False)
    drawn: list[Drawn] = field(default_factory=list)
    draw: Callable[[Distribution], TokenId] = field(init=False, repr=False)
    known: dict[str, dict[NodeId, Reading]] = field(default_factory=lambda: {"target": {}, "draft": {}})
    rounds: deque[Round] = field(default_factory=deque)
    error: ModelError | None = None

    @property
    def over(self) -> bool:
        return self.request.finished is not None or self.error is not None

    @property
    def last(self) -> NodeId:
        """The node that the next token of the chain follows."""
        return self.drawn[-1].node if self.drawn else self.waiting.nodes[0]

    def missing(self) -> list[NodeId]:
        """The nodes that it waits for whose readings are not known yet, without repeats."""
        known = self.known[self.waiting.model]
        nodes = (self.last,) if self.waiting.steps else self.waiting.nodes
        return [n for n in dict.fromkeys(nodes) if n not in known]

    def start(self) -> None:
        self.request.ledger.start()
        with torch.inference_mode():
            self._resume(None)

    def answer(self, readings: Iterable[Reading]) -> None:
        """Take the readings of the missing nodes, and continue the decoder until it needs another pass or has finished; the rounds that
        it commits meanwhile are queued."""
        self.known[self.waiting.model].update(zip(self.missing(), readings, strict=True))
        if (answer := self._answer()) is not None:
            self._resume(answer)

    def _answer(self) -> list[Reading] | list[Drawn] | None:
        """What the decoder is sent for its ask, as far as that is known; None if it must wait for more readings."""
        known, ask = self.known[self.waiting.model], self.waiting
        if not ask.steps:
            readings = [known[n] for n in ask.nodes if n in known]
            return readings if len(readings) == len(ask.nodes) else None
        tree, ends = self.request.tree, self.request.end_tokens
        while len(self.drawn) < ask.steps and (reading := known.get(self.last)) is not None:
            q = self.request.warp(reading)
            token, parent = self.draw(q), self.last
            self.drawn.append(Drawn(tree.add(parent, token), parent, token, q, reading))
            if token in ends:
                return self.drawn
        return self.drawn if len(self.drawn) == ask.steps else None

    def _resume(self, answer: list[Reading] | list[Drawn] | None) -> None:
        while not self.over:
            item = self.decoding.send(answer)
            answer = None
            if isinstance(item, Round):
                self._note(item)
                continue
            self.waiting, self.drawn = item, []
            if item.steps:
                self.draw = self.request.source.chain(item.steps)
            if (answer := self._answer()) is None:
                return
        self.drawn = []
        self.known = {}  # a reading keeps the logits of its whole pass
        self.decoding.close()

    def _note(self, entry: Round) -> None:
        """Queue a round, and forget what was known of dropped nodes."""
        self.annotate(entry)
        for model, known in self.known.items():
            self.known[model] = {n: known[n] for n in self.request.tips if n in known}
        self.rounds.append(entry)

    def annotate(self, entry: Round) -> None:
        """Give every token that a round kept its raw target log-probability and the likeliest tokens in its place."""
        target = self.known["target"]
        for trial in entry.tried.kept:
            if (reading := target.get(trial.parent)) is not None:
                trial.log_p, trial.round = reading.log_p(trial.token), entry.index
                trial.alternatives = reading.alternatives(ALTERNATIVES)
                self.request.kept[trial.node] = trial


def drive(
    turns: Sequence[Turn],
    engines: Mapping[str, Passes],
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
                turn.start()
            # Drafts first, so that all active turns share the target's pass.
            model = "draft" if any(t.waiting.model == "draft" for t in active) else "target"
            asking = [t for t in active if t.waiting.model == model]
            with torch.inference_mode():
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


def _admit(turn: Turn, engines: Mapping[str, Passes]) -> bool:
    if all(engine.admit(turn.request.tree, turn.rows) for engine in engines.values()):
        return True
    _release(turn.request, engines)
    return False


def _release(request: Request, engines: Mapping[str, Passes]) -> None:
    for engine in engines.values():
        engine.release(request.tree)


def _forward(asking: Sequence[Turn], engine: Passes, model: str, chunk: int | None) -> None:
    """One pass for these turns; each that gets its readings continues to its next ask."""
    wants = [(t.request.tree, t.missing()) for t in asking]
    answers = engine.run(wants, chunk)
    readings = read(_penalised(answers, asking, wants), asking)
    for turn, answer in zip(asking, answers, strict=True):
        ledger = turn.request.ledger
        _count(turn, model, engine, answer, len(asking))
        ledger.charge(model)
        if answer.part is None:
            continue
        try:
            if not readings.sound(answer.part):
                step = turn.request.tree.new_length(turn.request.answer) + 1
                raise ModelError(
                    f"The {engine.model.name} gave logits that are not numbers at token {step}; check its weights and its dtype."
                )
            turn.answer(readings[answer.part])
        except ModelError as error:
            turn.error = error.with_traceback(None)  # a traceback would keep the cache alive with the result
            turn.decoding.close()


def _penalised(answers: Sequence[Answer], asking: Sequence[Turn], wants: Wants) -> Logits:
    """The rows of a pass, changed by what each request's penalties make of them for the text that ends at each node."""
    rows = answers[0].rows
    if not any(turn.request.penalties for turn in asking):
        return rows
    rows = rows.clone()
    for turn, (tree, nodes), answer in zip(asking, wants, answers, strict=True):
        if turn.request.penalties and answer.part is not None:
            for place, node in zip(range(len(rows))[answer.part], nodes, strict=True):
                text = [tree.tokens[n] for n in tree.lineage(node)]
                rows[place] = applied(turn.request.penalties, text, rows[place])
    return rows


def read(rows: Logits, asking: Sequence[Turn]) -> Readings:
    """The readings of a pass for these turns, with as many of the likeliest tokens as any of them needs."""
    drafts = all(t.waiting.model == "draft" for t in asking)
    needed = max(max(held(t.request.warping), t.waiting.likeliest) for t in asking)
    temperature = asking[0].request.warping.temperature
    return Readings(rows, needed if drafts else max(needed, ALTERNATIVES), temperature, every=drafts)


def _count(turn: Turn, model: str, engine: Passes, answer: Answer, sharing: int) -> None:
    """Write down what a pass that `sharing` turns shared took for one of them."""
    ledger = turn.request.ledger
    ledger.bytes_read += answer.cache_bytes + answer.weight_bytes / sharing
    if waste := answer.waste:
        ledger.padded_tokens += waste.tokens
        ledger.padded_rows += waste.rows
        if model == "target" and waste.longest_growth > 0:
            ledger.padding_ratios.append(waste.rows / waste.longest_growth)
    ledger.peak_rows = max(ledger.peak_rows, engine.rows_of(turn.request.tree))
    ledger.peak_cache_bytes = max(ledger.peak_cache_bytes, answer.cache_bytes)
    ledger.count(model, answer.part is not None, answer.passes)
