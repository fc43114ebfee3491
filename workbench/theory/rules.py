"""The page of verification rules: those of the catalog on any p and q, by enumeration.

Source:
    Sun et al. 2024 (arXiv 2403.10444): the most that a lossless rule accepts of a chain.
"""

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import plotly.graph_objects as go

from decoders import Fate, Round, catalog
from decoders.testing import Rows, Situation, variation, ways
from decoders.testing.oracle import Watched
from decoders.testing.proof import Everywhere, Row, Table, likely, most_accepted
from decoders.testing.situations import Path
from workbench.show.looks import COLOURS
from workbench.show.plots import canvas
from workbench.theory.estimates import Measurements
from workbench.theory.page import NOW, Choice, Page, Slider, Values

SHOWN = 3  # tokens of a text in the figure
EXACT = 1e-9
TOKENS = "ABC"


def rules() -> dict[str, str]:
    """The decoders that verify one chain of a draft model, each with its title."""
    return {
        name: method.title
        for name, method in catalog.items()
        if method.uses_draft
        and "draft_length" in method.__dataclass_fields__
        and "window" not in method.__dataclass_fields__  # longer than these drafts
        and method().branches == (1, 0)
    }


@dataclass(frozen=True)
class Outcome:
    """What comes of one draft, and the target after it; texts are one token longer than the draft.

    Attributes:
        law: the law of the texts that come out
        target: the target's
        kept: mean tokens kept of the draft
        most: the largest such mean of a lossless rule
    """

    law: dict[str, float]
    target: dict[str, float]
    kept: float
    most: float


class OneRound(Watched):
    """A request that is over after the first round that no later one takes back."""

    def commit(self, *args: Any, provisional: bool = False, **options: Any) -> Round:
        entry = super().commit(*args, provisional=provisional, **options)
        self.finished = self.finished or (None if provisional else "one round")
        return entry


def enumerated(v: Values) -> Outcome:
    p, q = (_shares([getattr(v, f"{model}_{x}") for x in TOKENS[: v.V]]) for model in "pq")
    return _enumerated(v.rule, v.gamma, p, q)


def _shares(parts: list[int]) -> Row:
    """Parts as shares of their sum; nothing but zeros are equal parts."""
    parts = parts if any(parts) else [1] * len(parts)
    return tuple(Fraction(part, sum(parts)) for part in parts)


@lru_cache(maxsize=64)
def _enumerated(rule: str, gamma: int, p: Row, q: Row) -> Outcome:
    table = Table(len(p), Everywhere(p), Everywhere(q))
    target, draft = (Rows((tuple(map(float, row)),)) for row in (p, q))
    known: dict[Path, float] = defaultdict(float)
    kept = 0.0
    method, situation = catalog[rule](draft_length=gamma), Situation(target, draft, gamma + 1)
    for chance, request in ways(method, situation, request=OneRound):
        known[request.output] += chance
        fates = [trial.fate for trial in request.rounds[0].trials]
        kept += chance * fates.count(Fate.ACCEPTED)
    start: dict[Path, float] = {(): 1.0}
    law, alone = (
        {_text(path): mass for path, mass in likely(table, gamma + 1, each).items()}
        for each in (known, start)
    )
    return Outcome(law, alone, kept, float(sum(most_accepted(table, gamma))))


def _text(path: Path) -> str:
    return "".join(TOKENS[token] for token in path)


def law_figure(v: Values, _: Measurements) -> go.Figure:
    outcome = enumerated(v)
    figure = canvas("text", "probability")
    for name, law, colour in (
        ("target", outcome.target, COLOURS[0]),
        ("comes out", outcome.law, NOW),
    ):
        begun: dict[str, float] = defaultdict(float)
        for text in sorted(outcome.target):
            begun[text[:SHOWN]] += law.get(text, 0.0)
        figure.add_bar(
            x=list(begun), y=list(begun.values()), name=name, marker_color=colour,
            hovertemplate=f"%{{x}}: %{{y:.4f}}<extra>{name}</extra>",
        )  # fmt: skip
    return figure.update_layout(barmode="group", bargap=0.25).update_xaxes(type="category")


def now(v: Values) -> str:
    outcome = enumerated(v)
    far = variation(outcome.law, outcome.target)
    verdict = (
        "its text has exactly the target’s distribution here"
        if far < EXACT
        else f"total variation from the target’s distribution **{far:.4f}**"
    )
    return (
        f"{rules()[v.rule]}: {verdict} · keeps **{outcome.kept:.3f}** of {v.gamma} draft tokens on"
        f" average · a lossless rule at most **{outcome.most:.3f}**"
    )


def of_run(m: Measurements) -> str:
    run = m.speculative
    if run is None:
        return "This run has no rounds of speculative decoding."
    return (
        f"In this run speculative decoding kept {run.accepted} of the {run.tested} draft tokens"
        f" that it tested, α = {run.alpha:.2f}; here, of models without memory, α = Σ min(p, q)."
    )


RULES = Page(
    title="Rules",
    source="p and q are the same after every text; parts that are all 0 are equal. Enumerated with"
    " our own decoders, as `decoders.testing.prove` does for yours and for trees. The most that is"
    " possible for a chain: Sun et al. 2024, Block verification",
    formula=r"TV = \tfrac12 \sum_x |P(x) - P_{\text{target}}(x)|",
    says="Every text that the rule can write, with its probability. All random choices are "
    f"enumerated, none is drawn. Of longer texts, the first {SHOWN} tokens are shown; the "
    "total variation is that of the whole text. A rule that keeps more than the most of a lossless "
    "rule has another distribution.",
    fields=(
        Choice("rule", "rule", "of the catalog, with its usual settings", rules, "block"),
        Slider("V", "vocabulary", "tokens A, B and perhaps C", 2, 3, 2, 1),
        Slider("gamma", "draft length γ", "tokens of a draft", 1, 3, 2, 1),
        *(
            Slider(f"{model}_{x}", f"{model}({x}), parts", where + also, 0, 12, value, 1)
            for model, where, values in (
                ("p", "share under the target", (1, 2, 1)),
                ("q", "share in the draft", (2, 1, 1)),
            )
            for x, value, also in zip(TOKENS, values, ("", "", ", of 3 tokens"), strict=True)
        ),
    ),
    figure=law_figure,
    now=now,
    of_run=of_run,
)
