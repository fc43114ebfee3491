"""The page of one draft that every rule judges, with the same random numbers.

It asks `decoders.judge`, which runs the decoders' own rules.
"""

import itertools
from collections.abc import Sequence

import plotly.graph_objects as go

from decoders import Judgement, judge
from workbench.show.laws import Row, grouped
from workbench.show.plots import canvas
from workbench.theory.estimates import Measurements
from workbench.theory.page import FAMILY, Choice, FigureCard, Page, Slider, Values

TOKENS = "ABC"
LONGEST = 3


def drafts() -> dict[str, str]:
    texts = (
        "".join(text)
        for length in range(1, LONGEST + 1)
        for text in itertools.product(TOKENS, repeat=length)
    )
    return {text: " ".join(text) for text in texts}


def shares(v: Values, model: str) -> list[float]:
    """The distribution that sliders give; nothing but zeros are equal parts."""
    parts = [getattr(v, f"{model}_{x}") for x in TOKENS]
    parts = parts if any(parts) else [1] * len(parts)
    return [part / sum(parts) for part in parts]


def impossible(v: Values) -> str:
    """The first token of the draft that q cannot have drawn, "" if there is none."""
    q = dict(zip(TOKENS, shares(v, "q"), strict=True))
    return next((token for token in v.draft if not q[token]), "")


def judged(v: Values) -> Sequence[Row]:
    """The rows of all rules; [] for a draft that q cannot have drawn."""
    if impossible(v):
        return []
    places = len(v.draft) + 1
    judgements: list[Judgement] = judge(
        [shares(v, "p")] * places,
        [shares(v, "q")] * places,
        [TOKENS.index(token) for token in v.draft],
        uniforms=[getattr(v, f"u_{i}") for i in range(1, places)],
    )
    return grouped(judgements, list(v.draft))


def kept_figure(rows: Sequence[Row]) -> go.Figure:
    """For each rule the mean number of draft tokens that it keeps, place by place."""
    figure = canvas("draft tokens kept on average", "")
    names = [row["title"].replace(", ", ",<br>") for row in rows]
    for place in range(max((len(row["chances"]) for row in rows), default=0)):
        figure.add_bar(
            y=names, x=[row["chances"][place] for row in rows], orientation="h",
            name=f"token {place + 1}", marker_color=FAMILY[2 * place][0],
            hovertemplate=f"token {place + 1}: kept with chance %{{x:.3f}}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="stack", bargap=0.3, height=90 + 46 * max(len(rows), 4))
    return figure.update_yaxes(automargin=True, autorange="reversed")


def now(v: Values) -> str:
    if token := impossible(v):
        return f"q({token}) is 0, so the draft {v.draft} cannot have been drawn: raise q({token})."
    return "\n".join(
        f"- **{row['title']}** ({row['law']}) keeps **{row['kept']} of {len(v.draft)}**,"
        f" {row['mean']:.2f} on average. {row['why']}"
        for row in judged(v)
    )


def of_run(m: Measurements) -> str:
    return (
        "Open a round of this run under Compare and unfold “What other rules would keep” to judge"
        " its own draft."
    )


ONE_DRAFT = Page(
    "One draft",
    "p and q are the same after every text. `decoders.judge` and the command `judge` do the same"
    " for any draft, and the picture of a run for the drafts of its rounds",
    (
        *(
            Slider(f"{model}_{x}", f"{model}({x}), parts", where, 0, 12, value, 1)
            for model, where, values in (
                ("p", "share under the target", (3, 2, 1)),
                ("q", "share in the draft", (2, 3, 1)),
            )
            for x, value in zip(TOKENS, values, strict=True)
        ),
        *(
            Slider(
                f"u_{i}", f"random number {i}", f"tests token {i} for every rule", 0.0, 1.0, value
            )
            for i, value in ((1, 0.3), (2, 0.8), (3, 0.5))
        ),
    ),
    (
        FigureCard(
            "Kept on average",
            r"\mathrm{E}[\text{kept}] = \sum_i \Pr(\text{the first } i \text{ tokens are kept})",
            "Over all random numbers, for this draft alone. A rule that keeps more of one draft "
            "may keep less of another: the page Rules has the mean over all drafts.",
            lambda v, m: kept_figure(judged(v)),
        ),
    ),
    now,
    of_run,
    choices=(Choice("draft", "draft", "what the draft model drew", drafts, "BAB"),),
)
