"""A request: its tree, its random source and its limits. A decoder only asks it for logits and commits rounds to it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from decoders.sampling import RandomSource
from decoders.shapes import Logits, NodeId, Probs, TokenId
from decoders.trace import KEPT, Round, Trial
from decoders.tree import TokenTree
from decoders.warp import Warping, warp

ALTERNATIVES = 5


@dataclass(frozen=True, slots=True)
class Ask:
    """What a decoder yields to get next-token logits: a model ("target" or "draft") and nodes of its tree.

    It is sent logits (nodes, V), one row per node in the order asked.
    """

    model: str
    nodes: tuple[NodeId, ...]


@dataclass
class Counts:
    """Forward passes of one request, and the bytes of weights and cache that they read.

    A call is one answer; a model that is not packed may take several passes for it.
    A pass that several requests share counts once for each; its weights are read once, so each is charged its share.
    `padding_ratios` has this request's pads / tau_max for each alignment of the target's caches: the mean over rounds and requests
    is the paper's r (ems-sd.txt eq. 9-10).
    """

    target_calls: int = 0
    draft_calls: int = 0
    prefill_calls: int = 0
    target_passes: int = 0
    draft_passes: int = 0
    padded_tokens: int = 0
    padded_rows: int = 0
    padding_ratios: list[float] = field(default_factory=list)
    bytes_read: float = 0.0
    peak_rows: int = 0
    peak_cache_bytes: int = 0


class Request:
    """One prompt being decoded.

    tree          the token tree
    source        all its randomness
    warping       how logits become the distribution that is sampled
    budget        most new tokens
    end_tokens    ids that end the output
    stops         a function that says whether a list of new tokens contains a stop string
    vocabulary    V, for drafts without a model;  references  texts, as tokens, that such drafts may copy from
    finished      None while running, else "end of sequence", "stop string", "budget" or "cancelled"
    answer        the tip of the output so far
    """

    def __init__(
        self,
        prompt: Sequence[TokenId],
        source: RandomSource,
        warping: Warping,
        budget: int,
        end_tokens: frozenset[TokenId] = frozenset(),
        stops: Callable[[list[TokenId]], bool] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        vocabulary: int | None = None,
        references: Sequence[Sequence[TokenId]] = (),
    ):
        self.tree = TokenTree(prompt)
        self.source = source
        self.warping = warping
        self.budget = budget
        self.end_tokens = end_tokens
        self.stops = stops
        self.clock = clock
        self.vocabulary = vocabulary
        self.references = references
        self.finished: str | None = None
        self.answer: NodeId = self.tree.trunk[-1]
        self.rounds: list[Round] = []
        self.kept: dict[NodeId, Trial] = {}
        self.counts = Counts()
        self.known: dict[str, dict[NodeId, torch.Tensor]] = {"target": {}, "draft": {}}
        self._spent = {"target": 0.0, "draft": 0.0}
        self._counted = Counts()
        self._mark: float | None = None
        self._began: float | None = None

    # ---- what a decoder may read

    @property
    def tip(self) -> NodeId:
        """The last node that all live branches share: the end of the text, for decoders that follow one path."""
        return self.tree.trunk[-1]

    @property
    def left(self) -> int:
        """How many more tokens the answer may have."""
        return self.budget - self.tree.new_length(self.answer)

    def warp(self, logits: Logits) -> Probs:
        return warp(logits, self.warping)

    def ends(self, node: NodeId) -> str | None:
        """Why the text ends with this node: "end of sequence", "stop string", or None if it does not."""
        if self.tree.tokens[node] in self.end_tokens:
            return "end of sequence"
        if self.stops and self.stops(self.tree.new_tokens(node)):
            return "stop string"
        return None

    @property
    def seconds(self) -> float:
        """Wall time from admission to the last `note_time`."""
        return self._mark - self._began if self._began is not None else 0.0

    # ---- what a decoder may do

    def ask(self, model: str, nodes: Sequence[NodeId]) -> Ask:
        return Ask(model, tuple(nodes))

    def advance(self, trials: list[Trial], tip: NodeId) -> Round:
        """Commit a round of a decoder that follows one path: the answer now ends at `tip`, or at the first node before it that ends
        the text. Trials after that node are dropped, since nothing after it is output. Yield the result."""
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
        """Commit a round: `tips` stay alive, `answer` is the tip of the output so far, `finished` says why it is the last one. A
        later round may take back a provisional answer. Yield the result."""
        self.annotate([t for t in trials if t.fate in KEPT])
        entry = Round(len(self.rounds), trials, provisional=provisional and not finished)
        fork = self.tree.fork(self.answer, answer)
        entry.nodes = self.tree.lineage(answer, self.tree.depths[fork] + 1)
        entry.tokens = [self.tree.tokens[n] for n in entry.nodes]
        entry.keep = self.tree.new_length(fork)
        entry.target_calls = self.counts.target_calls - self._counted.target_calls
        entry.draft_calls = self.counts.draft_calls - self._counted.draft_calls
        self._counted.target_calls, self._counted.draft_calls = self.counts.target_calls, self.counts.draft_calls

        self.answer, self.finished = answer, finished
        self.tree.keep(tips)
        for model, rows in self.known.items():
            self.known[model] = {n: rows[n] for n in tips if n in rows}
        self.note_time("target")  # the rule's time belongs to verifying
        entry.draft_seconds, entry.verify_seconds = self._spent["draft"], self._spent["target"]
        self._spent = dict.fromkeys(self._spent, 0.0)
        self.rounds.append(entry)
        return entry

    # ---- what the loop does

    def note_time(self, model: str | None) -> None:
        """Charge the time since the last call to drafting or verifying; None starts the clock."""
        now = self.clock()
        if model is None:
            self._began = now
        elif self._mark is not None:
            self._spent[model] += now - self._mark
        self._mark = now

    def missing(self, ask: Ask) -> list[NodeId]:
        """The nodes of an ask whose logits are not known yet, without repeats."""
        known = self.known[ask.model]
        return list(dict.fromkeys(n for n in ask.nodes if n not in known))

    def answer_to(self, ask: Ask) -> Logits:
        known = self.known[ask.model]
        return torch.stack([known[n] for n in ask.nodes])

    def annotate(self, trials: list[Trial]) -> None:
        """Give every kept token its raw target log-probability and the likeliest tokens in its place."""
        known = self.known["target"]
        trials = [t for t in trials if t.parent in known]
        if not trials:
            return
        parents = list(dict.fromkeys(t.parent for t in trials))
        log_p = torch.stack([known[n] for n in parents]).log_softmax(-1)
        values, ids = log_p.topk(min(ALTERNATIVES, log_p.shape[-1]))
        pairs = zip(ids.tolist(), values.exp().tolist(), strict=True)
        likeliest = {n: tuple(zip(*pair, strict=True)) for n, pair in zip(parents, pairs, strict=True)}
        row = {n: i for i, n in enumerate(parents)}
        places = [row[t.parent] * log_p.shape[-1] + t.token for t in trials]
        chosen = log_p.take(torch.tensor(places, device=log_p.device)).tolist()
        for trial, value in zip(trials, chosen, strict=True):
            trial.log_p, trial.alternatives, trial.round = value, likeliest[trial.parent], len(self.rounds)
            self.kept[trial.node] = trial
