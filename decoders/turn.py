"""A request in the loop (Turn): its open ask, the readings of its nodes, and its new rounds."""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from decoders.asks import Ask, Drawn
from decoders.distribution import Distribution
from decoders.engine.protocols import Chain
from decoders.errors import ModelError
from decoders.randomness import Numbers, SeededSource, one_by_one
from decoders.reading import Reading
from decoders.request import ALTERNATIVES, Request
from decoders.settings import Decoding
from decoders.shapes import NodeId, TokenId
from decoders.trace import Round
from decoders.warp import MOST, held


@dataclass(eq=False)
class Turn:
    """A request while it is being decoded.

    Attributes:
        index: the number of the request
        request: the request
        decoding: the generator of its decoder
        rows: cache rows to reserve for it in each model
        models: the models that it asks
        waiting: the ask that it waits for, once it has started
        waited: for how many passes of other models it has waited
        drawn: the tokens of a chain so far
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
    waited: int = 0
    drawn: list[Drawn] = field(default_factory=list)
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
        return self.drawn[-1].node if self.drawn else self.waiting.nodes[0]

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
    def chain(self) -> Chain | None:
        """What is left of its open chain, if passes can draw it by themselves."""
        request, warping = self.request, self.request.warping
        if not self.waiting.steps or self.unstarted or request.penalties:
            return None
        numbers = self.draw.peek if isinstance(self.draw, Numbers | SeededSource) else None
        if numbers is None or not warping.usual or warping.top_k > MOST:
            return None
        steps = self.waiting.steps - len(self.drawn)
        return Chain(
            steps,
            warping,
            numbers if warping.temperature else None,
            request.end_tokens,
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
            if self.drawn and self.drawn[-1].token == token and used < len(tokens):
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

    def _answer(self) -> list[Reading] | list[Drawn] | None:
        """What is sent to the decoder for its ask; None if it must wait for more readings."""
        known, ask = self.known[self.waiting.model], self.waiting
        if not ask.steps:
            return None if self.missing() else [known[node] for node in ask.nodes]
        while not self.complete:
            if self.last not in known:
                if ask.piecemeal and self.drawn:
                    break
                return None
            self._step(known[self.last])
        if ask.piecemeal and len(self.drawn) > 1:
            self.request.ledger.share(len(self.drawn))
        return self.drawn

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
            assert isinstance(self.draw, Numbers | SeededSource)
            self.draw.take(1)
        self.drawn.append(Drawn(self.request.tree.add(parent, token), parent, token, q, reading))
        self.complete = len(self.drawn) == ask.steps or token in self.request.end_tokens
        return not self.complete

    def _resume(self, answer: list[Reading] | list[Drawn] | None) -> None:
        while not self.over:
            item = self.decoding.send(answer)
            answer = None
            if isinstance(item, Round):
                self._note(item)
                continue
            self.waiting, self.drawn, self.complete = item, [], False
            if item.steps:
                # Nobody knows how many numbers a chain takes that hesitates or comes in pieces.
                source, open_ended = self.request.source, item.until or item.piecemeal
                self.draw = one_by_one(source) if open_ended else source.chain(item.steps)
            if (answer := self._answer()) is None:
                return
        self.drawn = []
        self.known.clear()  # a reading keeps the logits of its whole pass
        self.decoding.close()

    def _note(self, entry: Round) -> None:
        self.request.annotate(entry, self.known["target"])
        following = [d.parent for d in self.drawn]  # the chain's other tokens are rounds to come
        for model, known in self.known.items():
            # A draft that heeds the target's states says something else now that it has them.
            kept = () if self.heeds and model != "target" else (*self.request.tips, *following)
            self.known[model] = {n: known[n] for n in kept if n in known}
        self.rounds.append(entry)
