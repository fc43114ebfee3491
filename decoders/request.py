"""A request: its tree, its source of randomness, its limits, and what a decoder asks of models.

A decoder only asks it for readings and commits rounds to it.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from decoders.distribution import Distribution, Warping
from decoders.reading import Reading
from decoders.shapes import NodeId, Penalties, TokenId
from decoders.trace import KEPT, Fate, Ledger, Round, Trial
from decoders.tree import TokenTree


class RandomSource(Protocol):
    """The random operations of a decoder. Tests use a source that enumerates every outcome."""

    def draw(self, probs: Distribution, count: int = 1) -> list[int]:
        """`count` ids, drawn independently with replacement."""

    def accept(self, probability: float) -> tuple[bool, float]:
        """Accept with a probability.

        Args:
            probability: the chance; above 1 counts as 1

        Returns:
            Whether it was accepted, and the uniform number u in [0, 1) that decided.
        """

    def chain(self, steps: int | None) -> Callable[[Distribution], int]:
        """A function that draws from one distribution after another, at most `steps` times.

        All random numbers are taken from the source now, even if fewer are needed, so that later
        draws do not depend on where a chain ends. Without `steps`, each draw takes the source's
        next one.
        """


class Uniforms:
    """Draws by inverting the cumulative distribution at the given uniform numbers in turn."""

    def __init__(self, numbers: Iterable[float] = ()):
        self._following = deque(numbers)

    def take(self, count: int) -> list[float]:
        return [self._following.popleft() for _ in range(count)]

    def peek(self, count: int) -> list[float]:
        """The next numbers, which stay the next."""
        return list(islice(self._following, count))

    def draw(self, probs: Distribution, count: int = 1) -> list[int]:
        return probs.draw(self.take(count))

    def __call__(self, probs: Distribution) -> int:
        return self.draw(probs)[0]


class SeededSource(Uniforms):
    """The numbers of Python's generator: one seed gives the same draws on any device.

    Args:
        seed: any whole number; taken modulo 2**64
    """

    def __init__(self, seed: int):
        super().__init__()
        self._generate = random.Random(seed % 2**64).random

    def take(self, count: int) -> list[float]:
        following, generate = self._following, self._generate
        return [following.popleft() if following else generate() for _ in range(count)]

    def peek(self, count: int) -> list[float]:
        while len(self._following) < count:
            self._following.append(self._generate())
        return super().peek(count)

    def accept(self, probability: float) -> tuple[bool, float]:
        (u,) = self.take(1)
        return u < probability, u

    def chain(self, steps: int | None) -> Uniforms:
        return self if steps is None else Uniforms(self.take(steps))


class Doubt(NamedTuple):
    """When a chain ends before its next token: where the model's raw probabilities leave it unsure.

    That depends on the reading that the token would be drawn from, and not on the token. So a chain
    that ends in doubt is as exact as any.

    Attributes:
        least: the chain ends if the largest probability is below this
        most: the chain ends if the entropy, in nats, is above this
    """

    least: float = 0.0
    most: float = math.inf

    def __call__(self, reading: Reading) -> bool:
        return bool(self.least and reading.highest < self.least) or (
            self.most < math.inf and reading.entropy > self.most
        )


class Ask(NamedTuple):
    """A decoder's question: what follows these nodes of its tree?

    The answer is a list of readings, one per node in the order asked; for a chain, a list of Draw.

    Attributes:
        model: "target", "draft" or "head"
        nodes: the nodes asked about
        likeliest: how many of the likeliest tokens the decoder will look at in each reading, beyond
            those that warping leaves
        steps: above 0, a chain: draw at most this many tokens with this model, the first after the
            one node asked about, each of the others after the one before. The chain ends with the
            first token that ends the text.
        until: of a chain, ends it before the first token for which this is true of the reading that
            the token would be drawn from
        piecemeal: of a chain, whether its answer may hold the first tokens alone, at least one: as
            many as the model draws in one call
    """

    model: str
    nodes: tuple[NodeId, ...]
    likeliest: int = 0
    steps: int = 0
    until: Doubt | None = None
    piecemeal: bool = False


class Draw(NamedTuple):
    """One drawn token. Equal draws share a node but remain separate draws.

    Attributes:
        node: its node
        parent: the node before it
        token: its id
        q: in the answer to a chain, the distribution that it was drawn from
    """

    node: NodeId
    parent: NodeId
    token: TokenId
    q: Distribution | None = None


ALTERNATIVES = 5  # kept of each token


class Request:
    """One prompt being decoded.

    Attributes:
        tree: the token tree
        source: all randomness of this request
        warping: how logits become the distribution that is sampled
        budget: most new tokens
        end_tokens: ids that end the output
        stops: a function that says whether a list of new tokens contains a stop string
        vocabulary: V, for drafts without a model
        references: texts, as tokens, that such drafts may copy from
        ledger: the cost so far
        penalties: changes the logits of both models after each text
        shared: what the requests of one call know together, by the key of whoever keeps it there
        finished: None while running; then "end of sequence", "stop string", "budget" or "cancelled"
        answer: the tip of the output so far
        tips: the tips of all branches that are alive since the last round
        rounds: the rounds committed so far
        trials: from each token that was kept in any round to the trial that produced it
    """

    def __init__(
        self,
        prompt: Sequence[TokenId],
        *,
        source: RandomSource,
        warping: Warping,
        budget: int,
        end_tokens: frozenset[TokenId] = frozenset(),
        stops: Callable[[list[TokenId]], bool] | None = None,
        vocabulary: int = 0,
        references: Sequence[Sequence[TokenId]] = (),
        ledger: Ledger | None = None,
        penalties: Penalties | None = None,
        shared: dict[Any, Any] | None = None,
    ):
        self.tree = TokenTree(prompt)
        self.source = source
        self.warping = warping
        self.budget = budget
        self.end_tokens = end_tokens
        self.stops = stops
        self.vocabulary = vocabulary
        self.references = references
        self.ledger = ledger or Ledger()
        self.penalties = penalties
        self.shared: dict[Any, Any] = {} if shared is None else shared
        self.finished: str | None = None
        self.answer: NodeId = self.tree.trunk[-1]
        self.tips: Sequence[NodeId] = (self.answer,)
        self.rounds: list[Round] = []
        self.trials: dict[NodeId, Trial] = {}

    # ---- For decoders to read

    @property
    def tip(self) -> NodeId:
        """The last node that all live branches share: the end of the text, if there is one path."""
        return self.tree.trunk[-1]

    @property
    def left(self) -> int:
        """How many tokens the answer may still grow by."""
        return self.budget - self.tree.new_length(self.answer)

    def warp(self, reading: Reading) -> Distribution:
        return reading.warp(self.warping)

    def ends(self, node: NodeId) -> str | None:
        """Why the text ends here, "end of sequence" or "stop string"; None if it goes on."""
        if self.tree.tokens[node] in self.end_tokens:
            return "end of sequence"
        if self.stops and self.stops(self.tree.new_tokens(node)):
            return "stop string"
        return None

    # ---- For decoders to call

    def ask(self, model: str, nodes: Sequence[NodeId], likeliest: int = 0) -> Ask:
        return Ask(model, tuple(nodes), likeliest)

    def draw(
        self,
        model: str,
        node: NodeId,
        steps: int,
        until: Doubt | None = None,
        piecemeal: bool = False,
    ) -> Ask:
        """Ask for a chain of at most `steps` tokens after a node, see `Ask`."""
        return Ask(model, (node,), steps=steps, until=until, piecemeal=piecemeal)

    def sample(
        self, after: NodeId, fate: Fate, probs: Distribution, p: Distribution
    ) -> tuple[list[Trial], NodeId]:
        """Draw the target's own token, the one after the kept part of a draft.

        Args:
            after: the last node kept, or the tip
            fate: the token's fate; nothing is drawn as a bonus after the end of the text
            probs: the distribution that it is drawn from
            p: the target's distribution there

        Returns:
            Its trial, if there is such a token, and the new tip.
        """
        if fate == Fate.BONUS and self.tree.tokens[after] in self.end_tokens:
            return [], after
        token = self.source.draw(probs)[0]
        tip = self.tree.add(after, token)
        return [Trial(tip, token, after, fate, p=p[token])], tip

    def alone(self, most: int | None = None) -> Generator[Ask | Round, Any, None]:
        """Rounds without a draft, each of one token of the target, until the text ends.

        Args:
            most: if given, at most so many, and those of one of its calls
        """
        while not self.finished:
            steps = self.left if most is None else most
            for d in (yield self.draw("target", self.tip, steps, piecemeal=True)):
                trial = Trial(d.node, d.token, d.parent, Fate.SAMPLED, p=d.q[d.token])
                yield self.advance([trial], d.node)
                if self.finished:
                    return
            if most is not None:
                return

    def advance(self, trials: list[Trial], tip: NodeId) -> Round:
        """Commit a round of a decoder that follows one path.

        The answer now ends at `tip`, or at the first node before it that ends the text. Trials
        after that node are dropped, since nothing after it is output.

        Args:
            trials: everything that was tried in this round
            tip: the last node that the decoder kept

        Returns:
            The round, for the decoder to yield.
        """
        path = self.tree.lineage(tip, self.tree.depths[self.answer] + 1)
        finished = None
        for node in path:
            finished = self.ends(node)
            if finished:
                tip = node
                trials = [t for t in trials if self.tree.depths[t.node] <= self.tree.depths[tip]]
                break
        if not finished and self.tree.new_length(tip) >= self.budget:
            finished = "budget"
        return self.commit(trials, [tip], tip, finished)

    def commit(
        self,
        trials: list[Trial],
        tips: Sequence[NodeId],
        answer: NodeId,
        finished: str | None = None,
        provisional: bool = False,
    ) -> Round:
        """Commit a round.

        Args:
            trials: everything that was tried in this round
            tips: the nodes that stay alive
            answer: the tip of the output so far
            finished: why this is the last round, if it is
            provisional: whether a later round may take the answer back

        Returns:
            The round, for the decoder to yield.
        """
        tree, fork = self.tree, self.tree.fork(self.answer, answer)
        nodes = tree.lineage(answer, tree.depths[fork] + 1)
        tokens, keep = [tree.tokens[n] for n in nodes], tree.new_length(fork)
        again = provisional and not finished
        entry = Round(len(self.rounds), trials, nodes, tokens, keep, again)
        self.answer, self.finished, self.tips = answer, finished, tips
        tree.keep(tips)
        self.ledger.settle(entry, last=finished is not None)
        self.rounds.append(entry)
        return entry

    def annotate(self, entry: Round, readings: Mapping[NodeId, Reading]) -> None:
        """Add raw log-probabilities of the target and alternatives to the tokens that a round kept.

        Args:
            readings: the target's
        """
        for trial in entry.trials:
            reading = readings.get(trial.parent) if trial.fate in KEPT else None
            if reading is not None:
                trial.log_p, trial.round = reading.log_p(trial.token), entry.index
                trial.likeliest = *reading.likeliest(ALTERNATIVES), reading.log_sum
                self.trials[trial.node] = trial
