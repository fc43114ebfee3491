"""Will it pay? From a few prompts: how often drafts are accepted, what drafting and testing cost, and so the speed-up of each draft length.

Acceptance is teacher-forced: the target writes texts, and at each of their places beta = 1 - TV(p, q) of the warped distributions is the
chance that the draft model's token is accepted (speculative-decoding.txt theorem 3.5). Theorem 3.8 assumes one alpha for all
places; here each place has its own, and the rounds are summed over them. A round's seconds are measured at a few draft lengths.
Decoders that this theory does not cover are measured on the same prompts.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

import torch

import decoders
from decoders import InputError, Method, ModelPair, Warping, catalog
from decoders.distribution import Whole
from decoders.theory import acceptance, walltime_factor
from decoders.warp import warp
from workbench.experiments.bench import whole
from workbench.measuring.admit import encode_prompt
from workbench.measuring.disturbance import watch
from workbench.measuring.job import measure
from workbench.measuring.meter import open_meter
from workbench.measuring.work import Work
from workbench.studies.schemes import BASELINE
from workbench.studies.settings import Settings
from workbench.studies.study import Job

TIMED_LENGTHS = (1, 4, 8)  # draft lengths whose rounds are timed; those between are interpolated
LENGTHS = tuple(range(1, 9))
MOST_PROMPTS = 20
OTHERS = ("lookup", "ngram", "spectr", "specinfer", "mcss", "typical", "bild", "mtad", "dsbd")


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: of one of greedy's rounds; of a round of speculative decoding by draft length; of a draft pass."""

    step: float
    rounds: dict[int, float]
    draft: float

    @property
    def c(self) -> float:
        """Seconds of a draft pass over those of a target pass (theorem 3.8)."""
        return self.draft / self.step

    def round(self, length: int) -> float:
        """Interpolated between the draft lengths that were timed."""
        known = sorted(self.rounds)
        low, high = (known[0], known[1]) if length <= known[1] else (known[-2], known[-1])
        slope = (self.rounds[high] - self.rounds[low]) / (high - low)
        return self.rounds[low] + slope * (length - low)


@dataclass(frozen=True, slots=True)
class Line:
    """A decoder with settings. predicted, measured  its speed over greedy's, None if not known;   tokens  per round"""

    method: Method
    predicted: float | None
    measured: float | None
    tokens: float | None

    @property
    def best(self) -> float:
        return self.measured if self.measured is not None else self.predicted or 0.0


@dataclass(frozen=True)
class Advice:
    """alpha   mean chance of acceptance;   by_place  the same by place in the text;   lines  the best first"""

    alpha: float
    by_place: list[float]
    costs: Costs
    temperature: float
    lines: list[Line] = field(default_factory=list)

    def theorem(self, length: int) -> float:
        """Theorem 3.8's speed-up, which takes a test of several tokens to cost as much as one."""
        return walltime_factor(self.alpha, length, self.costs.c)


def advise(
    pair: ModelPair,
    prompts: Sequence[str],
    settings: Settings,
    others: Sequence[str] = OTHERS,
    measure_all: bool = False,
) -> Generator[str | Advice, None, None]:
    """Yields a line about what it does now, and last the Advice.

    settings      sampling and the length of texts; its decoders are not read;   measure_all  also measure every draft length
    Raises InputError if the pair has no draft model.
    """
    if pair.draft is None:
        raise InputError("There is nothing to advise on without a draft model; load a pair of two models.")
    ids = [encode_prompt(pair, text, settings.chat_template) for text in prompts[:MOST_PROMPTS]]
    device = pair.target.device
    work = Work(pair, ids, settings, open_meter(device), watch(device), lambda: False)
    yield f"The target writes {len(ids)} texts."
    texts = list(_written(work))
    yield "Both models read them."
    betas = [accepted(pair, prompt, text, settings) for prompt, text in zip(ids, texts, strict=True)]
    speculative = {n: catalog["speculative"](draft_length=n) for n in LENGTHS}
    methods = [speculative[n] for n in (LENGTHS if measure_all else TIMED_LENGTHS)]
    methods += [catalog[name]() for name in others]
    timed: dict[Method, list[_Timed]] = {m: [] for m in [catalog[BASELINE](), *methods]}
    for i in range(len(ids)):
        yield f"Decoders take turns on prompt {i + 1} of {len(ids)}."
        for method in reversed(timed) if i % 2 else timed:
            timed[method].append(_timed(work, method, i))
    yield _advice(betas, timed, settings.temperature)


def _written(work: Work) -> Iterator[list[int]]:
    """The target's own texts, as the sampling says."""
    for i, prompt in enumerate(work.ids):
        options = {**work.settings.decoding, "seed": work.settings.seed + i}
        yield decoders.generate(work.pair, prompt, catalog["multinomial"](), **options).tokens


def accepted(pair: ModelPair, prompt: Sequence[int], text: Sequence[int], settings: Settings) -> list[float]:
    """For each token of the text the chance that a draft there is accepted: 1 - TV(p, q), (tokens,)."""
    ids = torch.tensor([[*prompt, *text]], device=pair.target.device)
    places = slice(len(prompt) - 1, ids.shape[1] - 1)
    assert pair.draft is not None  # else there is no advice
    warping = Warping(settings.temperature, settings.top_k, settings.top_p)
    with torch.inference_mode():
        p = warp(pair.target(ids).logits[0, places].float(), warping)
        q = warp(pair.packed["draft"].over_vocabulary(pair.draft(ids).logits[0, places]).float(), warping)
    return [acceptance(Whole(a), Whole(b)) for a, b in zip(p, q, strict=True)]


def tokens_per_round(betas: Sequence[float], length: int) -> float:
    """Tokens of a text over the expected rounds that write it, if the draft at place i is accepted with the chance betas[i].

    Rounds from place t on: R(t) = 1 + sum over k of P(k accepted) R(t + k + 1). No round drafts beyond the last token but one.
    """
    count = len(betas)
    rounds = [0.0] * (count + length + 2)
    for start in range(count - 1, -1, -1):
        drafted = min(length, count - start - 1)
        kept, expected = 1.0, 1.0
        for k in range(drafted):
            expected += kept * (1 - betas[start + k]) * rounds[start + k + 1]
            kept *= betas[start + k]
        rounds[start] = expected + kept * rounds[start + drafted + 1]
    return count / rounds[0] if count else 0.0


@dataclass(frozen=True, slots=True)
class _Timed:
    """One decoding of one prompt. rounds, drafting  seconds of its rounds and of their draft passes, without the first"""

    tokens: int
    seconds: float
    rounds: list[float]
    drafting: list[float]
    draft_calls: float
    gained: int


def _timed(work: Work, method: Method, prompt: int) -> _Timed:
    one = Work(work.pair, [work.ids[prompt]], work.settings, work.meter, work.watch, work.cancelled)
    done = whole(
        measure(one, Job(method, 0, work.settings.seed + prompt, keep="lengths"), cold=prompt == 0, drawn=False)
    )
    if done.result.errors:
        raise InputError(f"{method.name} failed on prompt {prompt + 1}: {done.result.errors[0]}")
    lap = done.lap
    metrics: dict[str, Any] = done.result.metrics
    # All but the first round, which also reads the prompt, and the last, which drafts less.
    return _Timed(
        metrics["new_tokens"], metrics["seconds"], lap.rounds[1:-1], lap.drafting[1:-1],
        metrics["draft_calls"] / max(1, len(lap.rounds)), len(done.rounds[0][0]),
    )  # fmt: skip


def _advice(betas: Sequence[Sequence[float]], timed: dict[Any, list[_Timed]], temperature: float) -> Advice:
    greedy = timed[catalog[BASELINE]()]
    step = _typical(fmean(t.rounds) for t in greedy if t.rounds)
    rounds, draft = {}, step
    for method, runs in timed.items():
        if method.name == "speculative":
            rounds[method.draft_length] = step * _over_greedy(runs, greedy, lambda t: t.rounds)
            if method.draft_length == max(TIMED_LENGTHS):
                draft = step * _over_greedy(runs, greedy, lambda t: t.drafting) / method.draft_length
    costs = Costs(step, {n: rounds[n] for n in TIMED_LENGTHS}, draft)
    # What a greedy text takes beyond its steps, reading the prompt, every decoder takes too.
    reading = _typical(max(0.0, t.seconds - t.tokens * fmean(t.rounds)) for t in greedy if t.rounds)
    lines = []
    total = sum(len(b) for b in betas)
    for length in LENGTHS:
        taken = sum(len(b) / tokens_per_round(b, length) for b in betas if b)
        predicted = (total * step + len(betas) * reading) / (taken * costs.round(length) + len(betas) * reading)
        method = catalog["speculative"](draft_length=length)
        lines.append(Line(method, predicted, _measured(timed.get(method), greedy), total / taken))
    for method, runs in timed.items():
        if method.name not in (BASELINE, "speculative"):
            tokens = sum(t.tokens for t in runs) / max(1, sum(t.gained for t in runs))
            lines.append(Line(method, None, _measured(runs, greedy), tokens))
    lines.sort(key=lambda line: -line.best)
    return Advice(fmean(x for b in betas for x in b), _by_place(betas), costs, temperature, lines)


def _measured(runs: Sequence[_Timed] | None, greedy: Sequence[_Timed]) -> float | None:
    if not runs:
        return None
    speeds = [sum(t.tokens for t in each) / sum(t.seconds for t in each) for each in (runs, greedy)]
    return speeds[0] / speeds[1]


def _over_greedy(runs: Sequence[_Timed], greedy: Sequence[_Timed], of: Callable[[_Timed], Sequence[float]]) -> float:
    """Mean seconds over those of greedy's rounds on the same prompt, whose turn came next to it: a machine that changes its speed changes
    both. The median over prompts leaves out those that something disturbed."""
    return _typical(fmean(of(a)) / fmean(b.rounds) for a, b in zip(runs, greedy, strict=True) if of(a) and b.rounds)


def _typical(found: Iterable[float]) -> float:
    values = list(found)
    if not values:
        raise InputError("The texts are too short to time; ask for more new tokens, or take other prompts.")
    return median(values)


def _by_place(betas: Sequence[Sequence[float]]) -> list[float]:
    longest = max(map(len, betas), default=0)
    return [fmean(b[i] for b in betas if i < len(b)) for i in range(longest)]
