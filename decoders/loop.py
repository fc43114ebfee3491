"""The loop (Loop): any number of requests (Turn) decode at once and share each model's passes."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
import torch

from decoders.devices import device_of
from decoders.distribution import Distribution, Tops
from decoders.engine.kernels.loading import scan_for
from decoders.engine.protocols import Answer, OpenChain, Passes, Wants
from decoders.errors import ModelError
from decoders.penalties import applied
from decoders.reading import FEW, MOST, Reading, Readings, held, sought
from decoders.request import ALTERNATIVES, Ask, Draw, Request, Uniforms
from decoders.settings import Decoding
from decoders.shapes import Logits, NodeId, TokenId
from decoders.trace import Round


@dataclass(eq=False)
class Turn:
    """A request while it is being decoded.

    Attributes:
        index: the number of the request
        decoding: the generator of its decoder
        rows: cache rows to reserve for it in each model
        models: the models that it asks
        waiting: the ask that it waits for, once it has started
        draws: the tokens of a chain so far
        draw: draws the next token of that chain
        complete: whether that chain has ended
        known: the readings of its live nodes, by model
        rounds: rounds that are committed but not yet yielded
        heeds: whether its draft reads the target's hidden states
        unstarted: whether the target reads the prompt, before the decoder begins
        error: why it failed, while the others continue
    """

    index: int
    request: Request
    decoding: Decoding
    rows: int = 0
    models: Sequence[str] = ("target", "draft")
    waiting: Ask = field(default=Ask("target", ()), repr=False)
    draws: list[Draw] = field(default_factory=list)
    draw: Callable[[Distribution], TokenId] = field(init=False, repr=False)
    complete: bool = False
    known: dict[str, dict[NodeId, Reading]] = field(default_factory=lambda: defaultdict(dict))
    rounds: deque[Round] = field(default_factory=deque)
    heeds: bool = False
    unstarted: bool = False
    error: ModelError | None = None

    @property
    def over(self) -> bool:
        return self.request.finished is not None or self.error is not None

    @property
    def last(self) -> NodeId:
        """The node that the next token of the chain follows."""
        return self.draws[-1].node if self.draws else self.waiting.nodes[0]

    def missing(self) -> list[NodeId]:
        """The nodes, without repeats, whose readings it waits for and does not have yet."""
        known = self.known[self.waiting.model]
        nodes = (self.last,) if self.waiting.steps else dict.fromkeys(self.waiting.nodes)
        return [n for n in nodes if n not in known]

    @property
    def held(self) -> int:
        """How many of the likeliest tokens the readings that it waits for must have.

        It depends on this turn alone: if others of a pass need more, its tokens must not change.
        """
        needed = max(held(self.request.warping), self.waiting.likeliest)
        return max(needed, ALTERNATIVES) if self.waiting.model == "target" else needed

    @property
    def whole(self) -> bool:
        """Whether more may be asked of the readings that it waits for than the likeliest tokens."""
        warping = self.request.warping
        few = not warping.top_n_sigma and 0 < warping.top_k <= MOST
        few = few or not warping.temperature
        return bool(not few or self.waiting.until or self.request.penalties)

    @property
    def chain(self) -> OpenChain | None:
        """What is left of its open chain, if passes can draw it by themselves."""
        request, warping = self.request, self.request.warping
        if not self.waiting.steps or self.unstarted or request.penalties:
            return None
        if not isinstance(self.draw, Uniforms) or not warping.usual or warping.top_k > MOST:
            return None
        steps, numbers = self.waiting.steps - len(self.draws), self.draw.peek
        return OpenChain(
            steps, warping, numbers if warping.temperature else None, request.end_tokens
        )

    def start(self, heeds: bool = False) -> None:
        """Run the decoder to its first ask.

        If its draft `heeds` the target's hidden states, the target first reads all tokens of the
        prompt but the last.
        """
        self.request.ledger.start()
        before = self.request.tree.parents[self.request.tip]
        self.heeds, self.unstarted = heeds, heeds and before >= 0
        if self.unstarted:
            self.waiting = self.request.ask("target", [before])
        else:
            with torch.inference_mode():
                self._resume(None)

    def extend(
        self, readings: Sequence[Reading], tokens: Sequence[TokenId]
    ) -> tuple[int, list[NodeId]]:
        """Take the tokens that passes have drawn for the open chain, up to its end.

        Args:
            readings: those before each token
            tokens: the tokens, of which all but the last are fed

        Returns:
            how many of the readings were looked at, and the nodes of fed tokens
        """
        nodes: list[NodeId] = []
        for used, (reading, token) in enumerate(zip(readings, tokens, strict=True), 1):
            self.known[self.waiting.model][self.last] = reading
            more = self._step(reading, token)
            if self.draws and self.draws[-1].token == token and used < len(tokens):
                nodes.append(self.last)
            elif more and used < len(tokens):
                return used, nodes  # rounding decided what a cut leaves: the others are not its own
            if not more:
                return used, nodes
        return len(tokens), nodes

    def answer(self, readings: Sequence[Reading] = ()) -> None:
        """Take the readings of the missing nodes and continue the decoder.

        It continues until it needs another pass or has finished; the rounds that it commits are
        queued.
        """
        if readings:
            self.known[self.waiting.model].update(zip(self.missing(), readings, strict=True))
        if self.unstarted:
            self.unstarted = False
            self._resume(None)
        elif (answer := self._answer()) is not None:
            self._resume(answer)

    def _answer(self) -> list[Reading] | list[Draw] | None:
        """What is sent to the decoder for its ask; None if it must wait for more readings."""
        known, ask = self.known[self.waiting.model], self.waiting
        if not ask.steps:
            return None if self.missing() else [known[node] for node in ask.nodes]
        while not self.complete:
            if self.last not in known:
                if ask.piecemeal and self.draws:
                    break
                return None
            self._step(known[self.last])
        if ask.piecemeal and len(self.draws) > 1:
            self.request.ledger.share(len(self.draws))
        return self.draws

    def _step(self, reading: Reading, token: TokenId | None = None) -> bool:
        """Draw the next token of the chain, or take the one that was drawn; whether it goes on."""
        ask, parent = self.waiting, self.last
        if ask.until and ask.until(reading):
            self.complete = True
            return False
        q = self.request.warp(reading)
        if token is None or not q[token]:
            token = self.draw(q)
        else:
            assert isinstance(self.draw, Uniforms)
            self.draw.take(1)
        self.draws.append(Draw(self.request.tree.add(parent, token), parent, token, q))
        self.complete = len(self.draws) == ask.steps or token in self.request.end_tokens
        return not self.complete

    def _resume(self, answer: list[Reading] | list[Draw] | None) -> None:
        while not self.over:
            item = self.decoding.send(answer)
            answer = None
            if isinstance(item, Round):
                self._note(item)
                continue
            self.waiting, self.draws, self.complete = item, [], False
            if item.steps:
                # Nobody knows how many numbers a chain takes that hesitates or comes in pieces.
                steps = None if item.until or item.piecemeal else item.steps
                self.draw = self.request.source.chain(steps)
            if (answer := self._answer()) is None:
                return
        self.draws = []
        self.known.clear()  # a reading keeps the logits of its whole pass
        self.decoding.close()

    def _note(self, entry: Round) -> None:
        self.request.annotate(entry, self.known["target"])
        following = [d.parent for d in self.draws]  # the chain's other tokens are rounds to come
        for model, known in self.known.items():
            # A draft that heeds the target's states says something else now that it has them.
            live = () if self.heeds and model != "target" else (*self.request.tips, *following)
            self.known[model] = {n: known[n] for n in live if n in known}
        self.rounds.append(entry)


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
    """

    def __init__(
        self,
        engines: Mapping[str, Passes],
        *,
        max_batch: int | None = None,
        prefill_chunk: int | None = None,
        static: bool = False,
    ):
        self.engines, self.max_batch, self.prefill_chunk = engines, max_batch, prefill_chunk
        self.static, self.queue, self.active = static, deque[Turn](), list[Turn]()

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
        return [*self.active, *self.queue]

    def step(self) -> list[tuple[Turn, Round | None]]:
        """Make one pass, or the passes of chains that are drawn in one call.

        Returns:
            (turn, round) for each round that it completed, and (turn, None) for each turn that is
                over
        """
        self._begin()
        if not self.active:
            return []
        model = self._next()
        asking = [turn for turn in self.active if turn.waiting.model == model]
        with torch.inference_mode():
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
        # Drafts go first, so that all active turns share the target's pass.
        models = (turn.waiting.model for turn in self.active)
        return next((model for model in models if model != "target"), "target")

    def _engines(self, turn: Turn) -> list[Passes]:
        return [self.engines[model] for model in turn.models if model in self.engines]

    def _end(self, turn: Turn) -> None:
        self.active.remove(turn)
        turn.decoding.close()
        self._release(turn)

    def _release(self, turn: Turn) -> None:
        for engine in self._engines(turn):
            engine.release(turn.request.tree)

    def _forward(self, asking: Sequence[Turn], model: str) -> None:
        engine = self.engines[model]
        # Heads read the target's hidden states, in the place of the draft, too.
        heads = [
            other
            for role, other in self.engines.items()
            if model == "target" and other.reads and any(role in turn.models for turn in asking)
        ]
        layers = tuple(dict.fromkeys(layer for head in heads for layer in head.reads))
        wants = [(turn.request.tree, turn.missing()) for turn in asking]
        most, every = max(turn.held for turn in asking), model != "target"
        chains = [each for turn in asking if not layers and (each := turn.chain)]
        chains = chains if len(chains) == len(asking) else []
        few = sum(len(nodes) for _, nodes in wants) <= FEW
        every = every or bool(chains) or few or all(turn.waiting.likeliest for turn in asking)
        if layers:
            answers = engine.run(wants, self.prefill_chunk, layers)
        else:
            likeliest = sought(most) if every else 1
            temperatures = {turn.request.warping.temperature for turn in asking}
            whole = any(turn.whole for turn in asking)
            answers = engine.read(
                wants, likeliest, chains, self.prefill_chunk, most, temperatures, whole
            )
        rows, tops = penalised(answers, asking, wants)
        readings = read(rows, asking, every, tops)
        for turn, answer in zip(asking, answers, strict=True):
            for head in heads:
                if answer.features is not None and head in self._engines(turn):
                    head.learn(turn.request.tree, answer.features.of(layers, head.reads))
            turn.request.ledger.charge(model)
            if answer.part is None:
                count(turn, model, engine, answer, len(asking), 0)
                continue
            if not readings.sound(answer.part):
                fail(turn, bad_logits(engine.model.name, turn))
                continue
            answered, used = readings.of(answer.part, turn.held), 1
            try:
                if answer.tokens:
                    used, fed = turn.extend(answered, answer.tokens)
                    engine.grow(turn.request.tree, fed)
                    answered = []
                count(turn, model, engine, answer, len(asking), used)
                turn.answer(answered)
            except ModelError as error:
                fail(turn, error)


def read(
    rows: Logits | np.ndarray, asking: Sequence[Turn], every: bool, tops: Tops | None = None
) -> Readings:
    """The readings of a pass, or of passes that drew chains.

    Args:
        rows: the logits, (n, V)
        asking: the turns, which all wait for one model
        every: whether all rows will be looked at; rules look at few of the target's
        tops: what was already read of the rows
    """
    temperatures = {turn.request.warping.temperature for turn in asking}
    most = max(turn.held for turn in asking)
    scan = (tops and tops.scan) or scan_for(rows)
    return Readings(rows, most, temperatures, every, scan, tops)


def penalised(
    answers: Sequence[Answer], asking: Sequence[Turn], wants: Wants
) -> tuple[Logits | np.ndarray, Tops | None]:
    """The rows of a pass, changed by each request's penalties for the text ending at each node.

    What was already read of them comes with them, read anew where rows have changed: what is read
    for a request does not depend on the others of its pass.
    """
    rows, tops = answers[0].rows, answers[0].tops
    # Of an array on the host Python learns in less time what it is than of a tensor.
    if not isinstance(rows, np.ndarray) and device_of(rows.device).on_host:
        rows = rows.numpy()
    if not any(turn.request.penalties for turn in asking):
        return rows, tops
    rows, places = rows.copy() if isinstance(rows, np.ndarray) else rows.clone(), list[int]()
    for turn, (tree, nodes), answer in zip(asking, wants, answers, strict=True):
        if turn.request.penalties and answer.part is not None and not turn.unstarted:
            mine = range(len(rows))[answer.part]
            places += mine
            for place, node in zip(mine, nodes, strict=True):
                row = torch.as_tensor(rows[place])
                rows[place] = applied(turn.request.penalties, tree.text(node), row)
    if tops and places:
        if not isinstance(rows, np.ndarray):
            return rows, None
        changed, scan = rows[places], scan_for(rows)
        tops.logits[places], tops.ids[places] = scan.likeliest(changed, tops.ids.shape[1])
        highest = tops.logits[places, 0].astype(np.float64)
        for temperature, excesses in tops.excesses.items():
            excesses[places] = scan.excesses(changed, highest, temperature)
    return rows, tops


def count(turn: Turn, model: str, engine: Passes, answer: Answer, sharing: int, used: int) -> None:
    """Add to one turn's ledger the cost of passes that `sharing` turns shared.

    Args:
        model: the model that made them
        engine: the passes of that model
        answer: the turn's answer
        sharing: the number of turns
        used: how many passes answered it: more than one of a chain, 0 for a part of the prompt
    """
    ledger, row_bytes, more = turn.request.ledger, engine.model.row_bytes, len(answer.tokens) - 1
    # Each pass of a chain sees a row more than the one before.
    grown = row_bytes * more * (more + 1) / 2 if more > 0 else 0.0
    ledger.bytes_read += max(1, 1 + more) * answer.cache_bytes + grown
    ledger.bytes_read += answer.weight_bytes / sharing
    ledger.peak(engine.rows_of(turn.request.tree), answer.cache_bytes + max(0, more) * row_bytes)
    if waste := answer.waste:
        ledger.padded_tokens += waste.tokens
        ledger.padded_rows += waste.rows
        if model == "target" and waste.longest_growth > 0:
            ledger.padding_ratios.append(waste.rows / waste.longest_growth)
    ledger.count(model, 0 if turn.unstarted else used, answer.passes)


def fail(turn: Turn, error: ModelError) -> None:
    """Let an error end this turn alone."""
    # A traceback would keep the cache alive together with the result.
    turn.error = error.with_traceback(None)
    turn.decoding.close()


def bad_logits(name: str, turn: Turn) -> ModelError:
    place = turn.request.tree.new_length(turn.request.answer) + 1
    return ModelError(
        f"The {name} gave logits that are not numbers at token {place}; check its weights and its "
        "dtype."
    )
