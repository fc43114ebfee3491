"""The papers' orderings on the embedded pair, as the shipped experiment found them.

`python -m tools.experiment` writes them from an experiment of the plan `stories`.
"""

import html
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from decoders.assets import assets
from workbench.experiments.report import Report, judged

FILE = assets() / "stories" / "orderings.json"
SIGNS = {"reproduced": "✓", "not reproduced": "✗", "undecided": "?", "not measured": "–"}
MEANS = {
    "reproduced": "as in the paper",
    "not reproduced": "the other way round",
    "undecided": "undecided: the interval of the difference includes 0",
    "not measured": "not measured",
}


@dataclass(frozen=True)
class Found:
    """An ordering of a paper, and what became of it here.

    Attributes:
        verdict: "reproduced", "not reproduced", "undecided" or "not measured"
        says: the claim in words
        source: the paper, with its table or section
        words: the figures here, and their difference
    """

    verdict: str
    says: str
    source: str
    words: str


@dataclass(frozen=True)
class Orderings:
    """All orderings of an experiment.

    Attributes:
        plan: name of its plan
        experiment: its id
        created: when it began (UTC, ISO 8601)
        pair: the pair and the machine
        found: the orderings
    """

    plan: str
    experiment: str
    created: str
    pair: str
    found: Sequence[Found]

    @staticmethod
    def of(found: Report, pair: str) -> "Orderings":
        """Those of a finished experiment; `pair` names its pair and its machine."""
        each = [
            Found(one.verdict, one.ordering.says, one.ordering.source, one.words)
            for one in judged(found)
        ]
        return Orderings(
            found.plan.name, found.progress.id, found.progress.created, pair, tuple(each)
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> "Orderings":
        data: dict[str, Any] = json.loads(text)
        return Orderings(**{**data, "found": tuple(Found(**each) for each in data["found"])})


@cache
def shipped() -> Orderings | None:
    """The orderings that ship with the embedded pair; None if there are none."""
    return Orderings.from_json(FILE.read_text(encoding="utf-8")) if FILE.exists() else None


def as_html(all: Orderings) -> str:
    """The orderings with a sign each, their counts, and where they come from."""
    counts = {
        verdict: n for verdict in SIGNS if (n := sum(f.verdict == verdict for f in all.found))
    }
    told = ", ".join(
        f"<b>{n} {SIGNS[verdict]}</b> {MEANS[verdict]}" for verdict, n in counts.items()
    )
    items = "".join(
        f'<li class="{found.verdict.replace(" ", "-")}"><b class="sign" role="img" '
        f'aria-label="{found.verdict}">{SIGNS[found.verdict]}</b> {html.escape(found.says)} '
        f"<small>{html.escape(found.source)}. Here {html.escape(found.words)}.</small></li>"
        for verdict in counts
        for found in all.found
        if found.verdict == verdict
    )
    marks = "".join(
        f'<b class="sign {found.verdict.replace(" ", "-")}" title="{html.escape(found.says)}">'
        f"{SIGNS[found.verdict]}</b>"
        for verdict in counts
        for found in all.found
        if found.verdict == verdict
    )
    return (
        '<section class="wb wb-orderings"><h3>Does the order of the papers hold here?</h3>'
        f"<p>Of {len(all.found)} claims such as “{html.escape(all.found[0].says)}”: {told}.</p>"
        f'<div class="marks" aria-hidden="true">{marks}</div>'
        f'<p class="source">Recorded on {html.escape(all.created[:10])} with the plan '
        f"<code>{html.escape(all.plan)}</code> (experiment {html.escape(all.experiment)}; "
        f"{html.escape(all.pair)}). Brackets are 95% intervals. Press <b>Run the plan</b> to "
        f"measure it here.</p><details><summary>All {len(all.found)} claims, with their figures"
        f"</summary><ul>{items}</ul></details></section>"
    )
