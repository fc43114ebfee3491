"""Fill the card's table of decoders from an experiment of the plan `stories`.

python assets/stories/experiment.py ID [--card assets/stories/README.md]
"""

import argparse
from pathlib import Path

import card
import project  # noqa: F401 - puts the project on the path

from workbench.experiments.files import INTERVALS, sentence
from workbench.experiments.journal import Journal
from workbench.experiments.report import Report, facts, judged, report, table
from workbench.show.tables import markdown


def as_markdown(found: Report) -> str:
    """The decoders' table, what it was measured on, and each ordering of the papers."""
    command = f"`python -m workbench experiment {found.plan.name}` (experiment {found.progress.id})"
    measured = "; ".join(f"{name}: {value}" for name, value in facts(found) if name in ("pair", "code of the decoders"))
    orderings = "\n".join(f"- {sentence(one)}" for one in judged(found))
    return "\n\n".join([f"{command}. {measured}. {INTERVALS}", markdown(table(found, "decoders")), orderings])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("id", help="of a finished experiment")
    parser.add_argument("--card", type=Path, default=Path(__file__).with_name("README.md"))
    args = parser.parse_args()
    text = card.fill(args.card.read_text(encoding="utf-8"), "decoders", as_markdown(report(Journal(), args.id)))
    args.card.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
