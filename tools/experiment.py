"""Fill the card's table and the documentation's page from an experiment of the plan `stories`.

python -m tools.experiment ID"""

import argparse
from pathlib import Path

from training import ROOT, SHIPPED, card
from workbench.experiments.files import markdown
from workbench.experiments.journal import Journal
from workbench.experiments.report import Report, facts, report, table
from workbench.experiments.sections import INTERVALS, as_markdown, orderings
from workbench.show import tables

CARD = SHIPPED / "README.md"
PAGE = ROOT / "docs" / "stories.md"


def of_card(found: Report) -> str:
    """The decoders' table, what it was measured on, and each ordering of the papers."""
    measured = "; ".join(
        f"{name}: {value}"
        for name, value in facts(found)
        if name in ("pair", "code of the decoders")
    )
    return "\n\n".join(
        [
            f"{_command(found)}. {measured}. {INTERVALS}",
            tables.markdown(table(found, "decoders")),
            as_markdown(orderings(found).content),
        ]
    )


def _command(found: Report) -> str:
    return f"`python -m workbench experiment {found.plan.name}` (experiment {found.progress.id})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("id", help="of a finished experiment")
    parser.add_argument("--card", type=Path, default=CARD)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    found = report(Journal(), args.id)
    args.card.write_text(
        card.fill(args.card.read_text(encoding="utf-8"), "decoders", of_card(found)),
        encoding="utf-8",
    )
    made = f"Made of {_command(found)} by `python -m tools.experiment`."
    args.page.write_text(f"{markdown(found, charts=True)}\n{made}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
