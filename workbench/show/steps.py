"""How drafting works, in four steps, from one real round of a run."""

from collections.abc import Sequence
from dataclasses import dataclass

from decoders import Fate, catalog
from workbench.runs.estimates import label
from workbench.runs.record import Result, Run
from workbench.runs.trace import RoundRecord, TrialRecord
from workbench.show.laws import SAMPLING
from workbench.studies.comparison import Comparison
from workbench.studies.text import counted

DRAFTED = (Fate.ACCEPTED, Fate.REJECTED, Fate.DISCARDED)


@dataclass(frozen=True)
class Step:
    """title, then what happened: texts, and tokens in between."""

    title: str
    parts: Sequence[str | TrialRecord]


def four_steps(run: Run) -> tuple[str, list[Step]]:
    """The decoder and the number of the round, in words, and the steps; no steps if no decoder of the run drafts, tests and corrects."""
    found = _example(run)
    if found is None:
        return "", []
    result, round_ = found
    drafted = [t for t in round_.trials if t.fate in DRAFTED]
    kept = [t for t in drafted if t.fate == Fate.ACCEPTED]
    refused = next(t for t in drafted if t.fate == Fate.REJECTED)
    own = next(t for t in round_.trials if t.fate == Fate.CORRECTED)
    where = f"{label(result.decoder)}, round {round_.index + 1} of {len(result.alone.rounds)}"
    return where, [
        Step("Guess", [f"The small model, which is quick, guesses {counted(len(drafted), 'token')}: ", *drafted]),
        Step("Read", ["The large model reads all of them in one pass. Alone it would need a pass for each token."]),
        Step("Test", [*_kept(kept), *_refused(refused, len(drafted) > len(kept) + 1)]),
        Step(
            "Correct",
            [
                "In its place the large model writes ", own, ". "
                f"So one pass gave {counted(len(kept) + 1, 'token')}, and the text is distributed exactly as if the large model had written "
                "it alone.",
            ],
        ),
    ]  # fmt: skip


def _example(run: Run) -> tuple[Result, RoundRecord] | None:
    """An early round of speculative decoding in which guesses were kept, and one refused by its random number."""
    if run.kind != Comparison.kind:
        return None
    results = [r for r in run.results if r.repeat == 0 and not r.error and r.decoder in catalog]
    for result in sorted(results, key=lambda r: r.decoder != "speculative"):
        method = catalog[result.decoder](**run.settings.get(result.decoder, {}))
        if method.law == SAMPLING and method.uses_draft:
            rounds = [r for r in result.alone.rounds if _tells(r)]
            if rounds:
                return result, max(rounds[:8], key=_plainness)
    return None


def _plainness(round_: RoundRecord) -> tuple[bool, int]:
    """How well a reader can follow a round: words rather than signs, and several kept."""
    words = all(t.text.strip().isalpha() for t in round_.trials if t.fate in (Fate.REJECTED, Fate.CORRECTED))
    return words, sum(t.fate == Fate.ACCEPTED for t in round_.trials)


def _tells(round_: RoundRecord) -> bool:
    fates = [t.fate for t in round_.trials]
    tested = [t for t in round_.trials if t.fate == Fate.REJECTED]
    known = all(x is not None for t in tested for x in (t.p, t.q, t.u, t.accept_probability))
    chain = fates.count(Fate.REJECTED) == 1 and fates.count(Fate.CORRECTED) == 1
    return chain and known and Fate.ACCEPTED in fates


def _kept(kept: Sequence[TrialRecord]) -> list[str | TrialRecord]:
    was = "was" if len(kept) == 1 else "were"
    return [*kept, f" {was} kept: the large model finds {'it' if len(kept) == 1 else 'them'} likely enough. "]


def _refused(trial: TrialRecord, others: bool) -> list[str | TrialRecord]:
    chance = f"{trial.accept_probability:.0%}"
    words = (
        f" was refused: the small model gave it a probability of {trial.q:.3g}, the large one only {trial.p:.3g}, so it is kept with "
        f"chance {trial.p:.3g} / {trial.q:.3g} = {chance}; the random number drawn was {trial.u:.3g}, which is above."
    )
    return [trial, words + (" What comes after it is dropped." if others else "")]
