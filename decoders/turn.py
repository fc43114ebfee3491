"""A request in the loop (Turn): its open ask, the readings of its nodes, and its new rounds."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch

from decoders.asks import Ask, Drawn
from decoders.distribution import Distribution
from decoders.engine.answers import Outlook
from decoders.errors import ModelError
from decoders.foreseen import Foreseen
from decoders.outlook import likely
from decoders.randomness import one_by_one
from decoders.reading import Reading
from decoders.request import ALTERNATIVES, Request
from decoders.settings import Decoding
from decoders.shapes import NodeId, TokenId
from decoders.steady import settled
from decoders.trace import Round
from decoders.warp import held, sought


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
        before: the one before
        foreseen: while it answers, passes made in advance, by model
        waited: for how many passes of other models it has waited
        drawn: the tokens of a chain so far
        draw: draws the next token of that chain
        known: the readings of its live nodes, by model
        rounds: rounds that are committed but not yet yielded
        heeds: whether its draft reads the target's hidden states
        unstarted: whether the target reads the prompt, before the decoder begins
        rests: whether its decoder is suspended at its last round, while passes in advance settle
            others; `waiting` is what it would ask
        error: why it failed, while the others continue
    """

    index: int
    request: Request
    decoding: Decoding
    rows: int = 0
    models: Sequence[str] = ("target", "draft")
    waiting: Ask = field(default=Ask("target", ()), repr=False)
    before: Ask = field(default=Ask("target", ()), repr=False)
    foreseen: Mapping[str, Foreseen] = field(default_factory=dict)
    waited: int = 0
    drawn: list[Drawn] = field(default_factory=list)
    draw: Callable[[Distribution], TokenId] = field(init=False, repr=False)
    known: dict[str, dict[NodeId, Reading]] = field(default_factory=lambda: defaultdict(dict))
    rounds: deque[Round] = field(default_factory=deque)
    heeds: bool = False
    unstarted: bool = False
    rests: bool = False
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
        """`held_of` the model that it waits for."""
        return self.held_of(self.waiting.model)

    def held_of(self, model: str) -> int:
        """How many of the likeliest tokens the readings of a model must have.

        It depends on this turn alone: if others of a pass need more, its tokens must not change.
        """
        needed = held(self.request.warping)
        if model == self.waiting.model:
            needed = max(needed, self.waiting.likeliest)
        return max(needed, ALTERNATIVES) if model == "target" else needed

    def outlook(self, most: int) -> Outlook | None:
        """How it goes on if it draws from what it waits for; None if that is not known.

        Args:
            most: the most tokens of interest
        """
        ask, rounds = self.waiting, self.request.rounds
        if not ask.steps or (not rounds and (ask.model == "target" or ask.until)):
            return None  # somebody waits for the first token, or the chain may hesitate
        tokens = min(most, ask.steps - len(self.drawn) - 1 + ask.more)
        if ask.until:  # nobody knows how long it is: perhaps as long as the one before
            tokens = min(tokens, rounds[-1].drafted - len(self.drawn))
        return likely(self.request, self.draw, tokens, tokens, [sought(self.held)])

    def rounds_ahead(self, most: int) -> Outlook | None:
        """How it goes on if rounds, `most` at most, draft as many tokens as it now begins to."""
        ask, before, left = self.waiting, self.before, self.request.left
        numbers = min(most, before.rounds_left, left) * (2 * ask.steps + 1)
        counts = [sought(self.held_of(model)) for model in ("target", "draft")]
        return likely(self.request, self.draw, left, numbers, counts, before.guess, ask.until)

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

    def answer(
        self, readings: Sequence[Reading], foreseen: Mapping[str, Foreseen] = MappingProxyType({})
    ) -> None:
        """Take the readings of the missing nodes and continue the decoder.

        It continues until it needs another pass or has finished; the rounds that it commits are
        queued.

        Args:
            readings: one for each missing node, or none if passes in advance have them
            foreseen: passes that were made in advance, by model
        """
        self.foreseen = foreseen
        if readings:
            self.known[self.waiting.model].update(zip(self.missing(), readings, strict=True))
        try:
            if self.unstarted:
                self.unstarted = False
                self._resume(None)
            elif self.rests:
                if not self._settle():
                    self._resume(None)
            elif (answer := self._answer()) is not None:
                self._resume(answer)
        finally:
            for passes in foreseen.values():
                passes.close()
            self.foreseen = {}  # they hold this turn and the memory of its rows

    def _answer(self) -> list[Reading] | list[Drawn] | None:
        """What is sent to the decoder for its ask; None if it must wait for more readings."""
        known, ask = self.known[self.waiting.model], self.waiting
        if not ask.steps:
            missing = self.missing()
            ready = not missing or self._made(missing)
            return [known[node] for node in ask.nodes] if ready else None
        tree, ends = self.request.tree, self.request.end_tokens
        while len(self.drawn) < ask.steps:
            parent = self.last
            if parent not in known and not self._made([parent]):
                return None
            reading = known[parent]
            if ask.until and ask.until(reading):
                break
            q = self.request.warp(reading)
            token = self.draw(q)
            self.drawn.append(Drawn(tree.add(parent, token), parent, token, q, reading))
            if token in ends:
                break
        return self.drawn

    def _made(self, nodes: Sequence[NodeId]) -> bool:
        """Take the readings at these nodes from a pass that was made in advance, if one was."""
        model = self.waiting.model
        passes = self.foreseen.get(model)
        found = passes.take(nodes) if passes else None
        if found:
            self.known[model].update(zip(nodes, found, strict=True))
        return bool(found)

    def _resume(self, answer: list[Reading] | list[Drawn] | None) -> None:
        while not self.over:
            item = self.decoding.send(answer)
            answer = None
            if isinstance(item, Round):
                self._note(item)
                if self.waiting.steady and self._settle():
                    return
                continue
            self.before, self.waiting, self.drawn = self.waiting, item, []
            if item.steps:
                # Nobody knows how many numbers a chain takes that ends when it hesitates.
                source = self.request.source
                self.draw = one_by_one(source) if item.until else source.chain(item.steps)
            if (answer := self._answer()) is None:
                return
        self.drawn = []
        self.known.clear()  # a reading keeps the logits of its whole pass
        self.decoding.close()

    def _settle(self) -> bool:
        """Take the rounds that nothing is left to decide in; return whether the decoder can rest.

        It can if rounds were made for it, which it has come to the end of, and others may follow.
        """
        self._rise()
        for entry in settled(self.request, self.foreseen, self.known):
            self._note(entry)
        draft = self.before
        drawn = self.foreseen.get(draft.model)
        used = drawn is not None and drawn.over
        steps = min(draft.steps, self.request.left - 1)  # the last token of a text is not drafted
        self.rests = used and steps > 0 and self.waiting.rounds_left > 0 and not self.over
        if self.rests:
            after = draft._replace(nodes=(self.request.tip,), steps=steps)
            self.before, self.waiting, self.drawn = self.waiting, after, []
        return self.rests

    def _rise(self) -> None:
        """Rest no longer; the last asks are again those that the decoder has made."""
        if self.rests:
            self.rests, self.before, self.waiting = False, self.waiting, self.before

    def wake(self) -> None:
        """Let a decoder that rests come to its next ask."""
        if self.rests:
            self._rise()
            self._resume(None)

    def _note(self, entry: Round) -> None:
        self.request.annotate(entry, self.known["target"])
        for model, known in self.known.items():
            # A draft that heeds the target's states says something else now that it has them.
            kept = () if self.heeds and model != "target" else self.request.tips
            self.known[model] = {n: known[n] for n in kept if n in known}
        self.rounds.append(entry)
