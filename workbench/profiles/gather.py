"""Profiles of what was measured here: of a run, and of an experiment's report."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean
from typing import Any

from decoders import InputError, Method, catalog
from decoders.errors import is_whole
from workbench.experiments.report import Report
from workbench.profiles.profile import LONGEST, LONGEST_NAME, Curve, Point, Profile
from workbench.runs.record import Run, Sample
from workbench.studies.methods import is_engine
from workbench.studies.settings import Settings, changed

ALL = "all"  # the category of prompts that have none
BUDGET = "budget"
LENGTHS = "draft_length", "depth", "copy"  # settings
NOTHING = (
    "has no rounds that drafted and whose tokens were counted; run a decoder that drafts, with one "
    "prompt at a time."
)


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of one text.

    Attributes:
        method: the name of its method, without the draft length
        draft_length: the most draft tokens in a row; 0 if nothing but the texts tells it
        budget: the most new tokens that the text may have
        sample: the text
        tree: whether a draft may branch while it has no more tokens than that
    """

    method: str
    draft_length: int
    budget: int
    sample: Sample
    tree: bool = False

    def counted(self) -> Iterator[tuple[int, int]]:
        """The tokens that a round gained and drafted, of rounds that nothing cut short.

        A round counts if a whole draft fitted into the budget that was left. The one in which a
        text ended does not: its tokens after the end are not known.
        """
        rounds = list(zip(self.sample.gained, self.sample.drafted, strict=False))
        before = accumulate((gained for gained, _ in rounds), initial=0)
        last = len(rounds) - 1 if self.sample.finished != BUDGET else len(rounds)
        for number, (written, (gained, drafted)) in enumerate(zip(before, rounds, strict=False)):
            if number < last and self.budget - written > self.draft_length and gained > 0:
                yield gained, drafted


def of_run(run: Run) -> Profile:
    """The profile of a run's decoders and engines.

    Raises:
        InputError: if it has no rounds that could be counted
    """
    environment, settings = run.environment, run.settings
    budget = settings.get("max_new_tokens", Settings.max_new_tokens)
    texts = [
        _rounds(r.decoder, r.settings or settings.get(r.decoder, {}), budget, sample)
        for r in run.results
        if not r.errors
        for sample in r.samples
        if _usable(sample)
    ]
    models = (environment.get(role) for role in ("target", "draft"))
    target, draft = (str(m.get("name", "")) if isinstance(m, dict) else "" for m in models)
    temperature = settings.get("temperature", 1.0)
    return _profile(f"run {run.id}", target, draft, temperature, texts)


def _usable(sample: Sample) -> bool:
    """Whether a text has rounds that drafted, none more than a profile takes; a file may."""
    return bool(sample.gained) and 0 < max(sample.drafted, default=0) <= LONGEST


def _rounds(decoder: str, settings: Mapping[str, Any], budget: int, sample: Sample) -> Rounds:
    """The rounds of a text of a decoder, or of an engine."""
    if is_engine(decoder):
        # The first token comes from the pass over the prompt, which verifies nothing.
        steps = replace(sample, gained=sample.gained[1:], drafted=sample.drafted[1:])
        length = settings.get("draft_length")
        if not is_whole(length) or not 1 <= length <= LONGEST:  # a file may say anything
            length = 0
        return Rounds(decoder, length, budget - sample.gained[0], steps)
    method = catalog[decoder](**settings)
    tree = getattr(method, "shape", None) == "tree"
    return Rounds(named(method), depth(method), budget, sample, tree)


def of_report(found: Report) -> Profile:
    """The profile of an experiment; of several pairs, temperatures or sets, each has its curves.

    Raises:
        InputError: if it has no rounds that could be counted
    """
    keys, texts = ("pair", "prompts", "temperature"), list[Rounds]()
    varied = [key for key in keys if len({cell.asked.get(key) for cell in found.cells}) > 1]
    for cell in found.cells:
        asked, own = cell.asked, [f"{key}={cell.asked.get(key)}" for key in varied]
        budget = asked.get("max_new_tokens", Settings.max_new_tokens)
        outputs = [o for row in cell.rows.values() if not row.errors for o in row.outputs]
        for sample in outputs:
            if _usable(sample):
                rounds = _rounds(asked["decoder"], asked["settings"], budget, sample)
                texts.append(replace(rounds, method=", ".join([rounds.method, *own])))
    pairs = {cell.asked["pair"] for cell in found.cells}
    temperatures = {cell.asked.get("temperature", 1.0) for cell in found.cells}
    return _profile(
        f"experiment {found.progress.id}",
        " / ".join(sorted(pairs)),
        "",
        temperatures.pop() if len(temperatures) == 1 else None,
        texts,
    )


def named(method: Method) -> str:
    """A method's name with the settings that differ from its defaults, without a fixed length."""
    own = {k: v for k, v in changed(method).items() if k not in LENGTHS or isinstance(v, str)}
    return " ".join([method.name, *(f"{k}={v}" for k, v in own.items() if k != "references")])


def depth(method: Method) -> int:
    """The most draft tokens in a row that the method's settings allow; 0 if they do not say."""
    for name in LENGTHS:
        if isinstance(length := getattr(method, name, None), int):
            return length
    return len(getattr(method, "expansion", ()))


def told(texts: Iterable[Rounds]) -> list[Rounds]:
    """The texts, each with a draft length: if need be, the most that a round of its method had.

    That of one text alone would sort texts by what came out of them.
    """
    texts, most = list(texts), defaultdict[str, int](int)
    for text in texts:
        most[text.method] = max([most[text.method], *text.sample.drafted])
    return [replace(text, draft_length=text.draft_length or most[text.method]) for text in texts]


def _profile(
    source: str, target: str, draft: str, temperature: float | None, texts: Iterable[Rounds]
) -> Profile:
    groups: dict[tuple[str, str], dict[tuple[int, bool], list[tuple[int, int]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for text in told(texts):
        for category in dict.fromkeys([ALL, text.sample.category or ALL]):
            groups[text.method, category][text.draft_length, text.tree] += text.counted()
    curves = [
        Curve(method[:LONGEST_NAME], category[:LONGEST_NAME], points)
        for (method, category), by_length in groups.items()
        if (points := tuple(p for n in sorted(by_length) if (p := _point(*n, by_length[n]))))
    ]
    if not curves:
        raise InputError(f"{source[0].upper()}{source[1:]} {NOTHING}")
    names = target[:LONGEST_NAME], draft[:LONGEST_NAME]
    return Profile(source, *names, temperature, tuple(curves))


def _point(draft_length: int, tree: bool, rounds: list[tuple[int, int]]) -> Point | None:
    """The point of some rounds; None if none of them drafted."""
    drafted = [(min(gained - 1, draft_length), drafts) for gained, drafts in rounds if drafts]
    if not drafted:
        return None
    kept = Counter(accepted for accepted, _ in drafted)
    beyond = [sum(n for k, n in kept.items() if k >= place) for place in range(1, draft_length + 1)]
    rates = tuple(n / len(drafted) for n in beyond)
    return Point(
        draft_length,
        1 + sum(rates),
        rates,
        fmean(drafts for _, drafts in drafted),
        len(drafted) / len(rounds),
        len(drafted),
        tree,
    )
