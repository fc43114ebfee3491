"""Advice: a study that finds out which decoders pay for a pair on this machine.

Acceptance is teacher-forced: the target writes texts, and at each place of a text the draft model's
token is accepted with the chance beta = 1 - TV(p, q) of the warped distributions (Leviathan et al.
2023, arXiv 2211.17192, theorem 3.5). Their theorem 3.8 assumes one alpha for all places; here each
place has its own chance, and the rounds are summed over them. A round's seconds are measured at a
few draft lengths.

Speed-ups are predicted and measured, with 95% intervals over the prompts. Every figure is computed
once from all prompts, and once from each resample of them. The resamples are the same for all
decoders, so that figures are paired. On a machine that others use, intervals are wide.
"""

import argparse
import html
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any, ClassVar, cast

import numpy as np
from rich.console import Group
from rich.text import Text

from decoders import InputError, Method, catalog
from decoders.errors import quoted, refuse
from decoders.settings import Law
from workbench.experiments.figures import COVERED, LEAST_ITEMS, RESAMPLES, Interval
from workbench.runs.record import Result, Run
from workbench.runs.timing import disturbances
from workbench.show.laws import claim, head
from workbench.show.quantities import MISSING
from workbench.show.tables import Table, markup
from workbench.show.view import Body, View
from workbench.studies import prompts as prompt_links
from workbench.studies.prompts import Prompt, PromptSet
from workbench.studies.settings import Settings, changed
from workbench.studies.study import BASELINE, GONE, Job, Study, in_turn
from workbench.terminal import flags, show
from workbench.terminal.show import grid, printable, remarks

MOST_PROMPTS = 20
TIMED_LENGTHS = (1, 4, 8)  # draft lengths whose rounds are timed; those between are interpolated
LENGTHS = tuple(range(1, 9))
TEXTS = catalog["multinomial"]()  # writes the texts that both models read
OTHERS = (
    "lookup", "ngram", "spectr", "specinfer", "mcss", "typical", "bild", "mtad", "dsbd",
    "beam_search", "speculative_beam_search",
)  # fmt: skip


@dataclass(frozen=True)
class Advice(Study):
    """A study for advice.

    For each prompt the target writes a text, each place of which is read by both models; then
    greedy decoding, speculative decoding at several draft lengths and the other decoders are timed.

    Attributes:
        prompt_set: the prompts, at most MOST_PROMPTS
        settings: the sampling, and the decoders to measure besides speculative decoding
        measure_all: whether every draft length is timed, to check the prediction

    Raises:
        InputError: for a study that gives no advice
    """

    kind: ClassVar[str] = "advice"
    usual: ClassVar[Mapping[str, Any]] = {"timings": 1, "decoders": list(OTHERS)}
    verb: ClassVar[str] = "Ask"
    linked: ClassVar[tuple[str, ...]] = prompt_links.NAMES
    needs_draft: ClassVar[bool] = True

    prompt_set: PromptSet
    settings: Settings
    measure_all: bool = False

    def __post_init__(self) -> None:
        refuse(
            (
                len(self.prompts) > MOST_PROMPTS,
                f"Advice takes at most {MOST_PROMPTS} prompts, not {len(self.prompts):,}.",
            ),
            (
                self.settings.repeats > 1 or self.settings.timings > 1,
                "Advice times each decoder once on each prompt: leave repeats and timings at 1, "
                "and take more prompts.",
            ),
            (
                not isinstance(self.measure_all, bool),
                f"measure_all must be true or false, not {quoted(self.measure_all)}.",
            ),
        )

    @property
    def title(self) -> str:
        return f"{len(self.prompts)} {self.prompt_set.name}"

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return self.prompt_set.prompts

    @property
    def needed(self) -> list[Method]:
        """The decoders without which there is no advice."""
        lengths = LENGTHS if self.measure_all else TIMED_LENGTHS
        speculative = catalog["speculative"]
        return [TEXTS, catalog[BASELINE](), *(speculative(draft_length=n) for n in lengths)]

    @property
    def others(self) -> list[Method]:
        known = {method.name for method in self.needed}
        return [method for method in self.settings.methods if method.name not in known]

    def jobs(self) -> list[Job]:
        """Prompt by prompt, the target's text first."""
        seed, jobs = self.settings.seed, []
        timed = [*self.needed[1:], *self.others]
        for i in range(len(self.prompts)):
            jobs.append(Job(TEXTS, i, seed, keep="chances", prompt=i))
            jobs += [Job(method, i, seed, keep="lengths", prompt=i) for method in in_turn(timed, i)]
        return jobs

    def to_json(self) -> dict[str, Any]:
        settings = {**self.flat_settings, "measure_all": self.measure_all}
        return {"prompts": self.prompt_set.to_json(), "settings": settings}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Advice":
        settings = data.get("settings")
        if isinstance(settings, Mapping):
            settings = {name: value for name, value in settings.items() if name not in GONE}
        shared, own = cls.split({"settings": settings})
        return cls(PromptSet.from_json(data.get("prompts")), shared, **own)


@dataclass(frozen=True, slots=True)
class RankedDecoder:
    """A decoder with settings.

    Attributes:
        method: the decoder
        predicted: its predicted speed over greedy's, None if not known
        measured: its measured speed over greedy's, None if not known
        tokens: tokens per round
    """

    method: Method
    predicted: Interval | None
    measured: Interval | None
    tokens: float

    @property
    def best(self) -> Interval:
        """The measured speed, or else the predicted one; every line has one of them."""
        return self.measured or cast(Interval, self.predicted)


@dataclass(frozen=True)
class Findings:
    """The findings of advice.

    Attributes:
        alpha: mean chance of acceptance
        draft: seconds of a draft pass over those of a target pass: c of Leviathan et al. 2023
            (arXiv 2211.17192), theorem 3.8
        four: seconds of a round of speculative decoding with four drafts, likewise
        temperature: the sampling temperature
        lines: the decoders, the fastest first
        doubts: a sentence about disturbed timings; "" if there were few
    """

    alpha: float
    draft: float
    four: float
    temperature: float
    lines: Sequence[RankedDecoder]
    doubts: str


def tokens_per_round(betas: Sequence[float], length: int) -> float:
    """Tokens of a text over the expected number of rounds that write it.

    Rounds from place t on: R(t) = 1 + sum over k of P(k accepted) R(t + k + 1). No round drafts
    beyond the last token but one.

    Args:
        betas: the chance that a draft is accepted at each place of the text
    """
    count = len(betas)
    rounds = [0.0] * (count + length + 2)
    for start in range(count - 1, -1, -1):
        drafted = min(length, count - start - 1)
        chance, expected = 1.0, 1.0
        for k in range(drafted):
            expected += chance * (1 - betas[start + k]) * rounds[start + k + 1]
            chance *= betas[start + k]
        rounds[start] = expected + chance * rounds[start + drafted + 1]
    return count / rounds[0] if count else 0.0


def ranked(
    betas: Sequence[Sequence[float]], timed: Mapping[Any, Sequence[Result]], temperature: float
) -> Findings:
    """Rank the decoders by their speed-up.

    Args:
        betas: for each prompt the chance of acceptance at each place of its text
        timed: for each decoder a timing of each prompt

    Raises:
        InputError: if the texts are too short to time
    """
    greedy, speculative = timed[catalog[BASELINE]()], catalog["speculative"]
    steps = [fmean(times) if (times := steady(result)) else None for result in greedy]
    step, longest = _typical(steps), max(TIMED_LENGTHS)
    drafts = _over_greedy(timed[speculative(draft_length=longest)], greedy, "drafting")
    rounds = {
        n: step * _over_greedy(timed[speculative(draft_length=n)], greedy) for n in TIMED_LENGTHS
    }
    # Beyond its steps a greedy text takes time to read the prompt, as with every decoder.
    beyond = [
        None if each is None else max(0.0, seconds - tokens * each)
        for (tokens, seconds), each in zip(map(spent, greedy), steps, strict=True)
    ]
    reading = len(betas) * _typical(beyond)
    lines, total = [], _sum(map(len, betas))
    for length in LENGTHS:
        method = speculative(draft_length=length)
        taken = _sum(len(b) / tokens_per_round(b, length) if b else 0.0 for b in betas)
        low, high = TIMED_LENGTHS[:2] if length <= TIMED_LENGTHS[1] else TIMED_LENGTHS[1:]
        share = (length - low) / (high - low)
        cost = rounds[low] + share * (rounds[high] - rounds[low])
        predicted = _interval((total * step + reading) / (taken * cost + reading), len(betas))
        measured = _measured(timed.get(method, []), greedy)
        lines.append(RankedDecoder(method, predicted, measured, total[0] / taken[0]))
    for method, runs in timed.items():
        if method.name not in (BASELINE, "speculative"):
            gained = sum(len(r.alone.gained) for r in runs)
            written = sum(tokens for tokens, _ in map(spent, runs)) / max(1, gained)
            lines.append(RankedDecoder(method, None, _measured(runs, greedy), written))
    lines.sort(key=lambda line: -line.best.value)
    return Findings(
        fmean(x for b in betas for x in b), float(drafts[0] / longest),
        float(rounds[4][0] / step[0]), temperature, lines,
        doubts([r for runs in timed.values() for r in runs]),
    )  # fmt: skip


def spent(result: Result) -> tuple[int, float]:
    """New tokens and seconds of a timing."""
    metrics: dict[str, Any] = result.metrics
    return metrics["new_tokens"], metrics["seconds"]


def steady(result: Result, of: str = "rounds") -> list[float]:
    """Seconds of the rounds of a timing, without the first and the last.

    The first also reads the prompt, and the last drafts less.

    Args:
        of: "rounds" or "drafting", their draft passes alone
    """
    return getattr(result.laps[0], of)[1:-1]


# ---- Figures of all prompts, then of each resample of them, (RESAMPLES + 1,)


@cache
def _picked(count: int) -> np.ndarray:
    """All of `count` prompts, then RESAMPLES resamples of them; (RESAMPLES + 1, count)."""
    others = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    return np.vstack([np.arange(count), others])


def _sum(values: Iterable[float]) -> np.ndarray:
    each = np.array(list(values), dtype=float)
    return each[_picked(len(each))].sum(axis=1)


def _typical(values: Sequence[float | None]) -> np.ndarray:
    """Medians, which ignore disturbed prompts. A prompt without the figure counts as typical."""
    known = [value for value in values if value is not None]
    if not known:
        raise InputError(
            "The texts are too short to time; ask for more new tokens, or take other prompts."
        )
    each = np.array([np.median(known) if value is None else value for value in values])
    return np.median(each[_picked(len(each))], axis=1)


def _over_greedy(
    runs: Sequence[Result], greedy: Sequence[Result], of: str = "rounds"
) -> np.ndarray:
    """Mean seconds over those of greedy's rounds on the same prompt.

    Both ran close together, so a change of the machine's speed affects both.
    """
    both = [(steady(a, of), steady(b)) for a, b in zip(runs, greedy, strict=True)]
    return _typical([fmean(own) / fmean(other) if own and other else None for own, other in both])


def _measured(runs: Sequence[Result], greedy: Sequence[Result]) -> Interval | None:
    if not runs:
        return None
    own, other = (
        _sum(tokens for tokens, _ in map(spent, each))
        / _sum(seconds for _, seconds in map(spent, each))
        for each in (runs, greedy)
    )
    return _interval(own / other, len(runs))


def _interval(values: np.ndarray, prompts: int) -> Interval:
    """The figure with its interval, which has no bounds if there are too few prompts."""
    low, high = np.percentile(values[1:], COVERED) if prompts >= LEAST_ITEMS else (0.0, np.inf)
    return Interval(float(values[0]), float(low), float(high))


# A warning is shown if more than this share of the timings was disturbed.
MOST_DISTURBED = 0.1
HEADS = [
    "decoder", "predicted x greedy (95%)", "measured x greedy (95%)", "tokens/round", "its text",
]  # fmt: skip
DAMAGED = "The figures of this run are damaged: they give no advice."
LATER = (
    "A head drafts worse at later places of a draft, so what is predicted for more than one draft "
    "token is too high; have every draft length measured."
)
NOTHING = "Nothing is known until every decoder has been measured on a prompt."


def findings(run: Run) -> Findings | None:
    """What the run says of single requests, from the prompts on which every decoder was timed.

    A decoder that failed on some prompt is left out.

    Returns:
        None if there is no such prompt, as after an early stop

    Raises:
        InputError: if the texts are too short to time
    """
    study, alone = Advice.from_json(run.study), [r for r in run.results if r.batch_size == 1]
    failed = {_method(study, r) for r in alone if r.errors or not r.laps}
    methods = [m for m in (*study.needed, *study.others) if m not in failed]
    each: dict[int, dict[Method, Result]] = {}
    for result in alone:
        each.setdefault(result.repeat, {})[_method(study, result)] = result
    whole = [one for one in each.values() if one.keys() >= set(methods)]
    if not whole or failed & set(study.needed):
        return None
    betas = [one[TEXTS].alone.chances for one in whole]
    timed = {m: [one[m] for one in whole] for m in methods if m != TEXTS}
    return ranked(betas, timed, study.settings.temperature)


def _method(study: Advice, result: Result) -> Method:
    known = {method.name: method for method in study.others}
    return known.get(result.decoder) or catalog[result.decoder](**result.settings)


def sentences(run: Run) -> tuple[str, str, Table | None]:
    """What a reader is told: a warning or "", what was found, and the table of the decoders."""
    try:
        advice = findings(run)
    except InputError as error:
        return "", str(error), None
    except (ArithmeticError, LookupError, TypeError, ValueError):  # a file may hold any numbers
        return "", DAMAGED, None
    if not advice:
        return "", NOTHING, None
    by_head = head(run.environment, catalog["speculative"]())
    guessed = by_head and not Advice.from_json(run.study).measure_all
    warnings = [advice.doubts, LATER if guessed else ""]
    return " ".join(filter(None, warnings)), verdict(advice), table(advice)


def unread(run: Run) -> list[str]:
    """A sentence on results of an earlier version that are shown no more; [] if there are none."""
    return [GONE["loads"]] if any(result.batch_size > 1 for result in run.results) else []


def table(advice: Findings) -> Table:
    rows = [
        [named(line.method), ranged(line.predicted), ranged(line.measured), f"{line.tokens:.2f}",
         claim(line.method, advice.temperature).chip]
        for line in advice.lines
    ]  # fmt: skip
    return Table(HEADS, rows)


def named(method: Method) -> str:
    """The decoder's name with the settings that differ from its defaults."""
    return " ".join([method.name, *(f"{k}={value}" for k, value in changed(method).items())])


def ranged(speed: Interval | None) -> str:
    """ "1.06 (0.95 to 1.17)"."""
    if speed is None:
        return MISSING
    between = f" ({speed.low:.2f} to {speed.high:.2f})" if math.isfinite(speed.high) else ""
    return f"{speed.value:.2f}{between}"


def verdict(advice: Findings) -> str:
    """Sentences on the costs, the best exact decoder and, if it is another one, the fastest."""
    costs = (
        f"On average a draft is accepted with the chance {advice.alpha:.2f} at temperature "
        f"{advice.temperature:g}; a draft pass costs {advice.draft:.2f} of a target pass, a "
        f"round with 4 drafts {advice.four:.2f}."
    )
    best = advice.lines[0]
    exact = next(line for line in advice.lines if line.method.law == Law.TARGET)
    says = [costs, f"The best exact decoder is {_judged(exact)}"]
    if best is not exact:
        chip = claim(best.method, advice.temperature).chip
        says.append(f"The fastest of all is {_judged(best, f' ({chip})')}")
    return " ".join(says)


def doubts(timings: Sequence[Result]) -> str:
    """A sentence about disturbed timings; "" if there were few."""
    counts = Counter(says for timing in timings for says in disturbances(timing))
    often = {says: n for says, n in counts.items() if n > MOST_DISTURBED * len(timings)}
    each = "; ".join(f"in {n} of {len(timings)} timings {says}" for says, n in often.items())
    return f"The machine was busy: {each}. Ask again when it is idle." if each else ""


def _judged(line: RankedDecoder, says: str = "") -> str:
    """A decoder, its speed, and whether it pays: only if the whole interval is above 1."""
    interval, measured = line.best, line.measured is not None
    speed = (
        f"{named(line.method)}{says}, {'measured' if measured else 'predicted'} at "
        f"{ranged(interval)} times greedy decoding's speed."
    )
    if interval.low > 1:
        return f"{speed} {'It pays.' if measured else 'It is predicted to pay.'}"
    if interval.high < 1:
        return f"{speed} {'It does not pay.' if measured else 'It is predicted not to pay.'}"
    if math.isfinite(interval.high):
        return f"{speed} The interval includes 1: whether it pays is uncertain."
    return (
        f"{speed} Whether it pays is uncertain: an interval needs at least {LEAST_ITEMS} prompts."
    )


def answer(run: Run) -> str:
    warning, finding, table = sentences(run)
    says = f'<div role="alert">{html.escape(warning)}</div>' if warning else ""
    own = f"{says}<p>{html.escape(finding)}</p>{markup(table) if table else ''}"
    return own + "".join(f"<p>{html.escape(words)}</p>" for words in unread(run))


VIEW = View("Advice", lambda run: Body(answer(run)))


DESCRIPTION = (
    "Predict the speed-up of speculative decoding from acceptance and costs, measure the other "
    "decoders, and rank them."
)
EXAMPLES = """examples:
  python -m workbench advise
  python -m workbench advise --models "SmolLM2-1.7B + SmolLM2-135M" --prompts my.jsonl
"""


def register(commands: Any) -> None:
    command = flags.command(
        commands, "advise", "predict and measure which decoders pay here", DESCRIPTION, EXAMPLES
    )
    command.set_defaults(command=run)
    add = command.add_argument
    add(
        "--prompts", default="stories", metavar="SET",
        help="stories, refrains, or a file (default: stories)",
    )  # fmt: skip
    add(
        "--count", metavar="N", default=str(MOST_PROMPTS),
        help=f"number of prompts, at most {MOST_PROMPTS} (default: {MOST_PROMPTS})",
    )  # fmt: skip
    words = "also measure every draft length, to check the prediction"
    add("--measure-all", action="store_true", help=words)
    flags.add(command, Advice.usual, Advice)


def run(args: argparse.Namespace) -> int:
    chosen = prompt_links.find(args.prompts).first(flags.number("count", args.count))
    settings, own = flags.settings(args, Advice.usual), flags.own(args, Advice)
    advice = Advice(chosen, settings, args.measure_all, **own)
    return show.run(advice, args)


def summary(run: Run) -> Group:
    warning, finding, table = sentences(run)
    says = (Text(printable(text)) for text in (warning, finding, *unread(run)) if text)
    shown = Group(grid(table), "") if table else Group()
    return Group(shown, *says, "", *remarks(run))
