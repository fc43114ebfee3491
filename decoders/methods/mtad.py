"""Tokens chosen by their joint likelihood: the target's own (MTJD), or those of a draft (MTAD).

MTJD is multi-token joint decoding (MJGD if greedy), MTAD is multi-token assisted decoding (first
called MJSD). MTAD keeps the longest prefix of a draft whose joint likelihood under the target is
not far below the draft model's.

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722), section 3.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from decoders.beams import likeliest_path
from decoders.errors import InputError
from decoders.methods.copies import Lookup
from decoders.methods.rules import Rule, Verdict, accepted, sides
from decoders.methods.sources import CHAINS, Draft
from decoders.reading import Reading
from decoders.request import Request
from decoders.settings import Criterion, Decoding, Method, claim, setting, shared
from decoders.shapes import NodeId
from decoders.trace import Fate, Trial


def log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


def joint_ratios(log_p: Sequence[float], log_q: Sequence[float]) -> list[float]:
    """log r_j = sum over i <= j of log p(x_i) - log q(x_i), for each j.

    Beam sampling warps the flattened joint, and so can draw tokens whose own conditional
    probability is warped to 0. With p = 0 this and all longer prefixes fail (-inf); q = 0 < p
    counts as a factor of 1.
    """
    ratios, ratio = [], 0.0
    for p, q in zip(log_p, log_q, strict=True):
        if p == -math.inf:
            ratio = -math.inf
        elif q > -math.inf:
            ratio += p - q
        ratios.append(ratio)
    return ratios


def keep_longest(
    request: Request,
    path: Sequence[NodeId],
    p: Sequence[Reading],
    log_p: Sequence[float],
    log_q: Sequence[float],
    threshold: float,
) -> tuple[list[Trial], NodeId]:
    """Judge a draft path by its joint likelihood, and draw the token after it.

    Prefix j passes if min(1, r_j) > threshold. The longest that passes is kept, even if a shorter
    one fails; then one token is drawn from the warped target. Returns every trial and the new tip.

    Args:
        path: the draft's nodes below the tip
        p: the target's readings before each token of the path and after the last
        log_p: the target's log-probabilities of the path's tokens, as they are compared
        log_q: those of the draft model; 0 for a certain token, as of a copy
        threshold: tau

    Source:
        Qin et al. 2024 (arXiv 2407.09722), section 3.2 and algorithm 1, where `eta <- j` is a
        misprint for i, and eta starts at 0.
    """
    ratios = [min(0.0, ratio) for ratio in joint_ratios(log_p, log_q)]
    # In logs, because a tiny ratio would underflow to 0 and fail threshold 0, which keeps all that
    # the target can write.
    least = log(threshold)
    length = max((j for j, ratio in enumerate(ratios, 1) if ratio > least), default=0)
    trials = [
        Trial(
            node, request.tree.tokens[node], request.tree.parents[node],
            Fate.ACCEPTED if j < length else Fate.REJECTED,
            math.exp(log_p[j]), math.exp(log_q[j]), math.exp(ratios[j]),
        )
        for j, node in enumerate(path)
    ]  # fmt: skip
    after = path[length - 1] if length else request.tip
    probs = request.warp(p[length])
    fate = Fate.SAMPLED if not path else Fate.BONUS if length == len(path) else Fate.CORRECTED
    own, tip = request.sample(after, fate, probs, probs)
    return trials + own, tip


def log_probabilities(
    request: Request, readings: Sequence[Reading], path: Sequence[NodeId], warped: bool
) -> list[float]:
    """Those of the path's tokens, each by the reading before it; a last reading may follow."""
    tokens = [request.tree.tokens[node] for node in path]
    return [
        log(request.warp(reading)[token]) if warped else reading.log_p(token)
        for reading, token in zip(readings, tokens, strict=False)
    ]


@dataclass(frozen=True)
class JointRule(Rule):
    """MTAD's rule for any chain: the longest prefix whose joint ratio passes, warped."""

    name = "mtad"
    law = None
    judges = CHAINS

    threshold: float = setting(
        0.1,
        "keep prefixes whose joint likelihood ratio min(1, p/q) is above this (tau)",
        low=0.0,
        high=1.0,
    )

    @property
    def criterion(self) -> Criterion:
        says = (
            "Keeps the longest part of the draft whose joint ratio, min(1, all p / all q), is "
            f"above {self.threshold:g}, even if that of a shorter part is not."
        )
        return Criterion(says, self.threshold, measure="ratio")

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        path = [d.node for d in draft.draws]
        log_p = log_probabilities(request, readings, path, warped=True)
        log_q = [
            log(draft.q[d.parent][d.token]) if d.parent in draft.q else 0.0 for d in draft.draws
        ]
        return keep_longest(request, path, readings, log_p, log_q, self.threshold)

    def why(self, trials: Sequence[Trial], names: Sequence[str]) -> str:
        count = accepted(trials)
        place = max(count, 1) - 1
        ratio, bound = sides(trials[place].accept_probability or 0.0, self.threshold)
        if not count:
            return (
                f"The joint ratio, all p / all q, is not above {bound} for any beginning; for "
                f"{names[0]} alone it is {ratio}."
            )
        whole = count == len(trials)
        what = "the whole draft" if whole else f"the part up to {names[place]}"
        most = "" if whole else ", and for no longer part"
        return f"The joint ratio, all p / all q, of {what} is {ratio}, above {bound}{most}."


MOST_SEQUENCES = 100_000


@dataclass(frozen=True)
class MTJD(Method):
    name = "mtjd"
    title = "MTJD"
    stands_for = "multi-token joint decoding"
    law = None
    paper, section = "Qin et al. 2024 (MTAD)", "3.1"
    summary = (
        "Chooses the next few tokens together, by their joint likelihood: likelier text, not "
        "faster."
    )

    block_length: int = setting(4, "tokens committed at a time (K)", low=1, high=64)
    beams: int = setting(8, "beams that search for them (W)", low=1, high=64)
    form: str = setting(
        "search",
        "how the beams are chosen: beam search or beam sampling",
        choices=("search", "sample"),
    )
    exact: bool = setting(
        False, "try every sequence of K tokens; for tiny vocabularies", choices=(False, True)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exact and self.form == "sample":
            raise InputError(
                "mtjd: exact needs form='search'; beam sampling does not try every sequence."
            )

    @property
    def branches(self) -> tuple[int, int]:
        return 1, 2 * MOST_SEQUENCES if self.exact else 1 + self.beams * self.block_length

    def refuse(self, vocabulary: int, budget: int) -> None:
        length = min(self.block_length, budget)
        if self.exact and vocabulary**length > MOST_SEQUENCES:
            raise InputError(
                f"mtjd: exact would try {vocabulary}**{length} sequences, more than "
                f"{MOST_SEQUENCES}; "
                "take a smaller block_length, or beams."
            )

    def decode(self, request: Request) -> Decoding:
        beams, sampled = None if self.exact else self.beams, self.form == "sample"
        while not request.finished:
            steps = min(self.block_length, request.left)
            path = yield from likeliest_path(request, "target", beams, steps, sampled)
            fate = Fate.SAMPLED if sampled else Fate.SEARCHED
            trials = [
                Trial(n, request.tree.tokens[n], parent, fate)
                for n, parent in zip(path, [request.tip, *path], strict=False)
            ]
            yield request.advance(trials, path[-1])


@dataclass(frozen=True)
class MTAD(Method):
    name = "mtad"
    title = "MTAD"
    stands_for = "multi-token assisted decoding"
    law = None
    paper, section = "Qin et al. 2024 (MTAD)", "3.2"
    summary = (
        "Keeps the longest prefix of the small model's best beam that the large model finds likely "
        "overall: fast, and usually likelier text than sampling."
    )

    draft_length: int = setting(4, "draft tokens per round (gamma)", low=1, high=64)
    beams: int = setting(8, "beams of the draft model (W)", low=1, high=64)
    threshold: float = shared(JointRule, "threshold")
    ratio: str = setting(
        "warped", "the distributions compared: warped as sampled, or raw", choices=("warped", "raw")
    )
    draft: str = setting(
        "sample",
        "where drafts come from: sampled beams of the draft model, its beam search, or a copy of "
        "the text so far (no draft model)",
        choices=("sample", "search", "lookup"),
    )

    @property
    def criterion(self) -> Criterion:
        return JointRule(self.threshold).criterion._replace(raw=self.ratio == "raw")

    @claim
    def uses_draft(self) -> bool:
        return self.draft != "lookup"

    @property
    def branches(self) -> tuple[int, int]:
        return 1, 1 + self.beams * self.draft_length

    def decode(self, request: Request) -> Decoding:
        lookup = (
            Lookup(request, match=2, copy=self.draft_length) if self.draft == "lookup" else None
        )
        while not request.finished:
            if lookup:
                path = (yield from lookup.propose(request)).nodes[1:]
            else:
                steps = min(self.draft_length, request.left - 1)
                path = yield from likeliest_path(
                    request, "draft", self.beams, steps, self.draft == "sample"
                )
            p, warped = (yield request.ask("target", [request.tip, *path])), self.ratio == "warped"
            log_p, log_q = log_probabilities(request, p, path, warped), [0.0] * len(path)
            if path and not lookup:
                q = yield request.ask("draft", [request.tip, *path[:-1]])
                log_q = log_probabilities(request, q, path, warped)
            yield request.advance(*keep_longest(request, path, p, log_p, log_q, self.threshold))
