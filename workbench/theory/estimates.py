"""The theory's quantities in a finished run, read from its trace: of requests and of batches."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from decoders import catalog
from decoders.trace import DRAFTED, KEPT, Fate
from workbench.runs.figures import BatchFigures, Row, label, rows, times_greedy, unsteady
from workbench.runs.record import Result, Run
from workbench.show.quantities import greedy_disturbed, padding_ratio


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """Acceptance and padding of one decoder in a batch run.

    Attributes:
        decoder: its name
        p: next-token accuracy, see `accuracy`
        padding: by batch size, the measured share of padding; None if the padded scheme did not run
    """

    decoder: str
    p: float
    padding: Mapping[int, float | None]


def batches(run: Run) -> tuple[MeasuredBatch, ...]:
    figures = BatchFigures(run)
    return tuple(
        MeasuredBatch(
            label(decoder),
            accuracy([tau for rounds in figures.acceptances[decoder] for tau in rounds if tau]),
            {size: padding_ratio(figures, decoder, size) for size in figures.sizes},
        )
        for decoder in figures.decoders
        if decoder in figures.acceptances
    )


def accuracy(lengths: Sequence[int]) -> float:
    """The likeliest accuracy if every acceptance length is geometric up to the longest.

    A length of k has k - 1 right tokens and, below the longest, a wrong one.
    """
    longest = max(lengths, default=0)
    right, wrong = sum(tau - 1 for tau in lengths), sum(tau < longest for tau in lengths)
    return right / (right + wrong) if right + wrong else 0.0


@dataclass(frozen=True, slots=True)
class MeasuredSpeculative:
    """Speculative decoding as it ran, all repeats together.

    Attributes:
        accepted: draft tokens kept
        tested: draft tokens tested
        gamma: mean draft tokens per round
        tokens: mean tokens per round
        c: seconds of a draft pass / seconds of greedy's target pass (medians); None if greedy did
            not run
        verify_cost: seconds of a verification / seconds of greedy's target pass (medians), which
            theorem 3.8 takes to be 1; None likewise
        speedup: mean tokens/s / greedy's; None likewise
        sure: whether nothing disturbed the timings
    """

    accepted: int
    tested: int
    gamma: float
    tokens: float
    c: float | None
    verify_cost: float | None
    speedup: float | None
    sure: bool = True

    @property
    def alpha(self) -> float:
        return self.accepted / self.tested


@dataclass(frozen=True, slots=True)
class MeasuredDSBD:
    """DSBD as it ran, all repeats together.

    `passed` / `verified` estimates the mean of min(t, beta).

    Attributes:
        passed: layers accepted whole
        verified: layers verified
        gamma: mean drafted layers per round
        steps: mean layers gained per round
    """

    passed: int
    verified: int
    gamma: float
    steps: float

    @property
    def layer_acceptance(self) -> float:
        return self.passed / self.verified


@dataclass(frozen=True, slots=True)
class MeasuredMTAD:
    """MTAD as it ran, all repeats together.

    Attributes:
        gamma_bar: mean tokens per round
        U: largest |ln p - ln q| in nats over the `compared` draft tokens: a lower estimate of the
            theory's maximum over all tokens and contexts; None if there was no such token
        compared: draft tokens with both p and q above 0
        one_sided: draft tokens with either p or q at 0: a single one makes U infinite
        ratio: "warped" or "raw": the distributions that p and q are of
        threshold: the setting
        draft_length: the setting
    """

    gamma_bar: float
    U: float | None
    compared: int
    one_sided: int
    ratio: str
    threshold: float
    draft_length: int


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of one run.

    They are None for a decoder that did not run with its rounds kept, or of which no draft was
    tested.

    Attributes:
        speculative: of speculative decoding
        dsbd: of DSBD
        mtad: of MTAD
        batches: of a batch run, each decoder's acceptance lengths
    """

    speculative: MeasuredSpeculative | None = None
    dsbd: MeasuredDSBD | None = None
    mtad: MeasuredMTAD | None = None
    batches: tuple[MeasuredBatch, ...] = ()


def measured(run: Run) -> Measurements:
    traced = {row.decoder: whole for row in rows(run.results) if (whole := _whole(row)).results}
    leviathan, layers, joint = (traced.get(name) for name in ("speculative", "dsbd", "mtad"))
    return Measurements(
        speculative(leviathan) if leviathan else None,
        dsbd(layers.results) if layers else None,
        mtad(joint.results, catalog["mtad"](**run.settings.get("mtad", {}))) if joint else None,
        batches(run),
    )


def _whole(row: Row) -> Row:
    """The repeats that did not fail and kept their rounds."""
    both = [
        (r, g)
        for r, g in zip(row.results, row.greedy, strict=True)
        if r.error is None and r.alone.rounds
    ]
    return replace(row, results=[r for r, _ in both], greedy=[g for _, g in both])


def speculative(row: Row) -> MeasuredSpeculative | None:
    results, greedy = row.results, [g for g in row.greedy if g is not None and g.error is None]
    rounds = [r for result in results for r in result.alone.rounds]
    fates = [t.fate for r in rounds for t in r.trials if t.fate in DRAFTED]
    tested = len(fates) - fates.count(Fate.DISCARDED)
    if not tested:
        return None
    plain = _pass_seconds(greedy, "verify_seconds", "target_calls")
    draft = _pass_seconds(results, "draft_seconds", "draft_calls")
    verify = _pass_seconds(results, "verify_seconds", "target_calls")
    speedups = [
        x
        for r, g in zip(row.results, row.greedy, strict=True)
        if (x := times_greedy(r, g)) is not None
    ]
    return MeasuredSpeculative(
        accepted=fates.count(Fate.ACCEPTED),
        tested=tested,
        gamma=len(fates) / len(rounds),
        tokens=sum(len(r.nodes) for r in rounds) / len(rounds),
        c=draft / plain if plain and draft is not None else None,
        verify_cost=verify / plain if plain and verify is not None else None,
        speedup=fmean(speedups) if speedups else None,
        sure=not (unsteady(row) or greedy_disturbed(row)),
    )


def dsbd(results: Sequence[Result]) -> MeasuredDSBD | None:
    steps = list[int]()
    drafted = passed = verified = 0
    for result in results:
        depth: dict[int, int] = {}  # below the prompt
        front = 0
        for round_ in result.alone.rounds:
            for t in sorted(round_.trials, key=lambda t: t.node):  # parents have lower ids
                depth[t.node] = depth.get(t.parent, 0) + 1
            layers = {depth[t.node] for t in round_.trials if t.fate in DRAFTED}
            per_layer = Counter(depth[t.node] for t in round_.trials if t.fate in KEPT)
            accepted = Counter(depth[t.node] for t in round_.trials if t.fate == Fate.ACCEPTED)
            deepest = max(per_layer, default=front)
            steps.append(deepest - front)
            front = deepest
            drafted += len(layers)
            verified += len(layers & per_layer.keys())
            passed += sum(per_layer[layer] == accepted[layer] for layer in per_layer)
    if not verified:
        return None
    return MeasuredDSBD(passed, verified, drafted / len(steps), fmean(steps))


def mtad(results: Sequence[Result], method: Any) -> MeasuredMTAD | None:
    rounds = [r for result in results for r in result.alone.rounds]
    pairs = [(t.p, t.q) for r in rounds for t in r.trials if t.q is not None and t.p is not None]
    if not pairs:
        return None
    gaps = [abs(math.log(p) - math.log(q)) for p, q in pairs if p > 0 and q > 0]
    return MeasuredMTAD(
        gamma_bar=sum(len(r.nodes) for r in rounds) / len(rounds),
        U=max(gaps, default=None),
        compared=len(gaps),
        one_sided=sum((p > 0) != (q > 0) for p, q in pairs),
        ratio=method.ratio,
        threshold=method.threshold,
        draft_length=method.draft_length,
    )


def _pass_seconds(results: Sequence[Result], seconds: str, calls: str) -> float | None:
    """Seconds of one forward pass, the median over all rounds but the first; None if there is none.

    The first round also reads the prompt.
    """
    rounds = [r for result in results for r in result.alone.rounds[1:] if getattr(r, calls)]
    return median(getattr(r, seconds) / getattr(r, calls) for r in rounds) if rounds else None
