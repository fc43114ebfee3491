"""A request in the loop (Turn): its open ask, the readings of its nodes, and its new rounds."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch

from decoders.distribution import Distribution
from decoders.engine.answers import Outlook
from decoders.engine.kernels.loading import scan_for
from decoders.errors import ModelError
from decoders.randomness import RandomSource, SeededSource
from decoders.reading import MOST, NUCLEUS, Reading, Readings, held
from decoders.request import Ask, Drawn, Request
from decoders.settings import Decoding
from decoders.shapes import Logits, NodeId, TokenId
from decoders.trace import Round

ALTERNATIVES = 5


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
        foreseen: (token, reading) of tokens that its model has guessed and fed
        waited: for how many passes of other models it has waited
        drawn: the tokens of a chain so far
        draw: draws the next token of that chain
        fed: while it answers, the model that has guessed them, the node before the next one, and
            whom to tell
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
    waiting: Ask = field(init=False, repr=False)
    foreseen: deque[tuple[TokenId, Reading]] = field(default_factory=deque)
    waited: int = 0
    drawn: list[Drawn] = field(default_factory=list)
    draw: Callable[[Distribution], TokenId] = field(init=False, repr=False)
    fed: tuple[str, NodeId, Callable[[NodeId], None]] = field(init=False, repr=False)
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
        nodes = (self.last,) if self.waiting.steps else self.waiting.nodes
        return [n for n in dict.fromkeys(nodes) if n not in known]

    @property
    def held(self) -> int:
        """How many of the likeliest tokens the readings that it waits for must have.

        It depends on this turn alone. If another turn in the pass needs more, this one does not get
        more, or its tokens could depend on that.
        """
        needed = max(held(self.request.warping), self.waiting.likeliest)
        return max(needed, ALTERNATIVES) if self.waiting.model == "target" else needed

    def outlook(self, most: int) -> Outlook | None:
        """How it goes on if it draws from what it waits for; None if that is not known.

        Args:
            most: the most tokens of interest
        """
        ask, request = self.waiting, self.request
        # In the first round somebody waits for the first token.
        if not ask.steps or not request.rounds or request.penalties:
            return None
        tokens = min(most, ask.steps - len(self.drawn) - 1 + ask.more)
        if ask.until:  # nobody knows how long it is: perhaps as long as the one before
            tokens = min(tokens, request.rounds[-1].drafted - len(self.drawn))
        warping = request.warping
        numbers = self._numbers(max(0, tokens)) if warping.temperature else ()
        if tokens < 1 or numbers is None or not warping.usual or warping.top_k > MOST:
            return None
        few = warping.top_k or (NUCLEUS if warping.cuts else 0)
        return Outlook(
            tokens, warping.temperature, few, bool(warping.top_k), warping.top_p, warping.min_p,
            numbers, tuple(request.end_tokens),
        )  # fmt: skip

    def _numbers(self, count: int) -> Sequence[float] | None:
        """The next numbers of the open chain, and after them those of the source, if both tell."""
        source, left = self.request.source, getattr(self.draw, "left", ())
        if not isinstance(source, SeededSource):
            return None
        return [*islice(left, count), *source.peek(max(0, count - len(left)))]

    def start(self, heeds: bool = False) -> None:
        """Run the decoder to its first ask.

        Args:
            heeds: whether its draft reads the target's hidden states; then the target reads all
                tokens of the prompt but the last before
        """
        self.request.ledger.start()
        before = self.request.tree.parents[self.request.tip]
        self.heeds, self.unstarted = heeds, heeds and before >= 0
        if self.unstarted:
            self.waiting = self.request.ask("target", [before])
            return
        with torch.inference_mode():
            self._resume(None)

    def answer(
        self,
        readings: Iterable[Reading],
        foreseen: Iterable[tuple[TokenId, Reading]] = (),
        fed: Callable[[NodeId], None] = lambda node: None,
    ) -> None:
        """Take the readings of the missing nodes and continue the decoder.

        It continues until it needs another pass or has finished; the rounds that it commits are
        queued.

        Args:
            readings: one for each missing node
            foreseen: tokens that were guessed, each with the reading after it
            fed: told that a node is such a token
        """
        self.foreseen, self.fed = deque(foreseen), (self.waiting.model, self.last, fed)
        self.known[self.waiting.model].update(zip(self.missing(), readings, strict=True))
        try:
            if self.unstarted:
                self.unstarted = False
                self._resume(None)
            elif (answer := self._answer()) is not None:
                self._resume(answer)
        finally:
            self.foreseen.clear()
            del self.fed  # whoever is told holds this turn and the memory of its rows

    def _answer(self) -> list[Reading] | list[Drawn] | None:
        """What is sent to the decoder for its ask; None if it must wait for more readings."""
        known, ask = self.known[self.waiting.model], self.waiting
        if not ask.steps:
            readings = [known[n] for n in ask.nodes if n in known]
            return readings if len(readings) == len(ask.nodes) else None
        tree, ends = self.request.tree, self.request.end_tokens
        while len(self.drawn) < ask.steps and (reading := known.get(self.last) or self._foreseen()):
            if ask.until and ask.until(reading):
                return self.drawn
            q = self.request.warp(reading)
            token, parent = self.draw(q), self.last
            self.drawn.append(Drawn(tree.add(parent, token), parent, token, q, reading))
            if token in ends:
                return self.drawn
        return self.drawn if len(self.drawn) == ask.steps else None

    def _foreseen(self) -> Reading | None:
        """The reading after the last token, if its model has guessed this token and fed it."""
        if not self.foreseen:
            return None
        (model, before, fed), node, tree = self.fed, self.last, self.request.tree
        if model != self.waiting.model or tree.parents[node] != before:
            return None
        token, reading = self.foreseen.popleft()
        if token != tree.tokens[node]:
            self.foreseen.clear()
            return None
        fed(node)
        self.known[model][node], self.fed = reading, (model, node, fed)
        return reading

    def _resume(self, answer: list[Reading] | list[Drawn] | None) -> None:
        while not self.over:
            item = self.decoding.send(answer)
            answer = None
            if isinstance(item, Round):
                self._note(item)
                continue
            self.waiting, self.drawn = item, []
            if item.steps:
                # Nobody knows how many numbers a chain takes that ends when it hesitates.
                source = self.request.source
                self.draw = one_by_one(source) if item.until else source.chain(item.steps)
            if (answer := self._answer()) is None:
                return
        self.drawn = []
        self.known.clear()  # a reading keeps the logits of its whole pass
        self.decoding.close()

    def _note(self, entry: Round) -> None:
        self.annotate(entry)
        for model, known in self.known.items():
            # A draft that heeds the target's states says something else now that it has them.
            kept = () if self.heeds and model != "target" else self.request.tips
            self.known[model] = {n: known[n] for n in kept if n in known}
        self.rounds.append(entry)

    def annotate(self, entry: Round) -> None:
        """Add raw log-probabilities of the target and alternatives to the tokens that a round kept.

        Args:
            entry: the round
        """
        target = self.known["target"]
        for trial in entry.tried.kept:
            if (reading := target.get(trial.parent)) is not None:
                trial.log_p, trial.round = reading.log_p(trial.token), entry.index
                trial.alternatives = reading.alternatives(ALTERNATIVES)
                self.request.kept[trial.node] = trial


def one_by_one(source: RandomSource) -> Callable[[Distribution], TokenId]:
    return lambda probs: source.draw(probs)[0]


def read(rows: Logits, asking: Sequence[Turn], ahead: bool = False) -> Readings:
    """The readings of a pass.

    Args:
        rows: the logits of the pass, (nodes, V)
        asking: the turns of the pass, which all wait for one model
        ahead: whether most rows are of passes in advance; they will probably all be looked at
    """
    every = ahead or all(turn.waiting.model != "target" for turn in asking)
    temperatures = {turn.request.warping.temperature for turn in asking}
    return Readings(rows, max(t.held for t in asking), temperatures, every, scan_for(rows))
