"""Four pictures that explain drafting, from one real round of a run."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from decoders import Fate
from decoders.settings import Law
from workbench.runs.estimates import label
from workbench.runs.record import Result, Run
from workbench.runs.trace import RoundRecord, TokenRecord, TrialRecord
from workbench.show import quantities, sums, terms
from workbench.studies.methods import known, method_of
from workbench.studies.text import counted

DRAFTED = (Fate.ACCEPTED, Fate.REJECTED, Fate.DISCARDED)
BEFORE = 3  # tokens of the text before the round that the pictures begin with
SIGNS = {Fate.ACCEPTED: "✓", Fate.REJECTED: "✗", Fate.CORRECTED: "✓"}

Token = TrialRecord | TokenRecord


@dataclass(frozen=True)
class Step:
    """A step.

    Attributes:
        title: a few words
        parts: the event in words, with tokens in between
        who: the model at work
        before: the end of the text so far
        drawn: the tokens of its picture
        looks: how the picture draws them: "guess", "read" or "fate"
        chances: the probabilities (draft, large model) of a token that was refused
    """

    title: str
    parts: Sequence[str | Token]
    who: str
    before: Sequence[Token]
    drawn: Sequence[Token]
    looks: str
    chances: tuple[float, float] | None = None


def four_steps(run: Run) -> tuple[str, list[Step]]:
    """The four steps of one round.

    Returns:
        (where, steps): the decoder and the number of the round, in words, and the steps; no steps
            if no decoder of the run drafts, tests and corrects
    """
    found = _example(run)
    if found is None:
        return "", []
    result, round_ = found
    before = [t for t in result.alone.tokens if (t.round or 0) < round_.index][-BEFORE:]
    drafted = [t for t in round_.trials if t.fate in DRAFTED]
    kept = [t for t in drafted if t.fate == Fate.ACCEPTED]
    refused = next(t for t in drafted if t.fate == Fate.REJECTED)
    corrected = next(t for t in round_.trials if t.fate == Fate.CORRECTED)
    was, them = ("was", "it") if len(kept) == 1 else ("were", "them")
    return f"{label(result.decoder)}, round {round_.index + 1} of {len(result.alone.rounds)}", [
        Step(
            "Guess",
            [f"The small model, which is quick, guesses {counted(len(drafted), 'token')} ahead."],
            "small model", before, drafted, "guess",
        ),
        Step(
            "Read",
            [
                "The large model reads all of them in one pass. Alone it would need a pass for "
                "each token."
            ],
            "large model", before, drafted, "read",
        ),
        Step(
            "Test",
            [
                *kept,
                f" {was} kept: the large model finds {them} likely enough. ",
                refused,
                _refusal(refused),
                " The guesses after it are dropped." if len(drafted) > len(kept) + 1 else "",
            ],
            "large model", before, drafted, "fate", (refused.q or 0.0, refused.p or 0.0),
        ),
        Step(
            "Correct",
            [
                "In its place the large model writes ",
                corrected,
                f". So one pass gave {counted(len(kept) + 1, 'token')}, and the text is "
                "distributed exactly as if the large model had written it alone.",
            ],
            "large model", before, [*kept, corrected], "fate",
        ),
    ]  # fmt: skip


def _example(run: Run) -> tuple[Result, RoundRecord] | None:
    """An early round in which guesses were kept, and one refused by its random number.

    Speculative decoding's are preferred.
    """
    for result in sorted(
        [r for r in run.results if r.repeat == 0 and not r.error and known(r.decoder)],
        key=lambda r: r.decoder != "speculative",
    ):
        method = method_of(result.decoder, run.settings.get(result.decoder, {}))
        if method.law == Law.TARGET and method.uses_draft:
            rounds = [r for r in result.alone.rounds if _tells(r)]
            if rounds:
                return result, max(rounds[:8], key=_plainness)
    return None


def _plainness(round_: RoundRecord) -> tuple[bool, int]:
    """How easily a reader follows a round: words rather than signs, and several kept."""
    own = (t.text.strip() for t in round_.trials if t.fate in (Fate.REJECTED, Fate.CORRECTED))
    return all(map(str.isalpha, own)), sum(t.fate == Fate.ACCEPTED for t in round_.trials)


def _tells(round_: RoundRecord) -> bool:
    fates = [t.fate for t in round_.trials]
    refused = [t for t in round_.trials if t.fate == Fate.REJECTED]
    told = all(t.u is not None and _by_ratio(t) for t in refused)
    return told and len(refused) == fates.count(Fate.CORRECTED) == 1 and Fate.ACCEPTED in fates


def _by_ratio(trial: TrialRecord) -> bool:
    """Whether p / q is the chance that it is kept, as where each token is judged by itself."""
    p, q, chance = trial.p, trial.q, trial.accept_probability
    if p is None or chance is None or not q:
        return False
    return abs(min(1.0, p / q) - chance) < 1e-6


def _refusal(trial: TrialRecord) -> str:
    def shown(value: float | None) -> Callable[[int], str]:
        return partial(quantities.significant, value or 0.0)

    chance, drawn = sums.enough(
        lambda chance, u: u >= chance,
        partial(quantities.percent, trial.accept_probability or 0.0),
        shown(trial.u),
    )
    p, q = sums.enough(lambda p, q: sums.gives(chance, p / q), shown(trial.p), shown(trial.q))
    return (
        f" was refused: the small model gave it a probability of {q}, the large one {p}, so "
        f"it is kept with chance {p} / {q} = {chance}; the random draw, {drawn}, was higher."
    )


def how_it_works(run: Run) -> str:
    """Drafting in four pictures, from a round of this run; "" if it has none to show."""
    where, steps = four_steps(run)
    if not steps:
        return ""
    items = "".join(
        f'<li><h4><span class="number">{number}</span> {step.title}</h4>{_picture(step)}'
        f"<p>{_sentence(step.parts)}</p></li>"
        for number, step in enumerate(steps, 1)
    )
    return (
        '<section class="wb wb-steps" aria-label="How speculative decoding works">'
        "<h3>How speculative decoding works, in four pictures "
        f'<span class="wb-where">from {html.escape(where)}</span></h3><ol>{items}</ol></section>'
    )


def _picture(step: Step) -> str:
    """The end of the text, and the tokens of the step; the sentence below it says the same."""
    before = html.escape("".join(t.text for t in step.before).replace("\n", "⏎"))
    tokens = "".join(
        f'<span class="box"><span class="tok {t.fate if step.looks == "fate" else ""}">'
        f"<bdi>{_shown(t)}</bdi></span>"
        f"<i>{'?' if step.looks == 'guess' else SIGNS.get(Fate(t.fate), '·')}</i></span>"
        for t in step.drawn
    )
    bars = "".join(
        f'<div class="bar-line"><span>{name}</span><span class="track"><i class="{kind}" '
        f'style="width:{max(1.0, 100 * min(1.0, p)):.1f}%"></i></span></div>'
        for kind, name, p in zip(
            "qp", ("small model", "large model"), step.chances or (), strict=False
        )
    )
    return (
        f'<div class="picture {step.looks}" aria-hidden="true"><span class="who">{step.who}</span>'
        f'<div class="row"><span class="before">…<bdi>{before}</bdi></span>'
        f'<span class="tokens">{tokens}</span></div>{bars}</div>'
    )


def _shown(token: Token) -> str:
    return html.escape(token.text.strip(" ").replace("\n", "⏎") or "␣")


def _sentence(parts: Sequence[str | Token]) -> str:
    """Texts, and tokens with their marks; spaces separate tokens next to each other."""
    text, after_token = "", False
    for part in parts:
        if isinstance(part, str):
            text += terms.explained(part)
        else:
            text += (
                " " * after_token
                + f'<span class="tok {part.fate}"><bdi>{_shown(part)}</bdi></span>'
            )
        after_token = not isinstance(part, str)
    return text
