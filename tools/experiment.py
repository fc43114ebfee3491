"""Fill what ships about the plan `stories`: the page's orderings, the card's table, a documentation
page.

    python -m tools.experiment [ID]

Without an id it first runs the plan with the shipped pair, or finishes an experiment that was
stopped: nothing is done twice. Alone on two cores that takes a quarter of an hour.
"""

import argparse
import sys
from contextlib import closing
from pathlib import Path

from training import ROOT, SHIPPED, card
from workbench.experiments import driver, plan_file
from workbench.experiments.files import markdown
from workbench.experiments.journal import Journal
from workbench.experiments.report import Report, facts, report, table
from workbench.experiments.request import Request
from workbench.experiments.sections import INTERVALS, as_markdown, orderings
from workbench.experiments.shipped import FILE, Orderings
from workbench.experiments.workers import Crew, InProcess
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.show import tables

PLAN = "stories"
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


def measured() -> str:
    """The id of an experiment of the plan that is finished, with the shipped pair and this code."""
    plan = plan_file.find(PLAN)
    request = Request(plan.source, f"{plan.name}.toml", None, None, None)
    with Crew(InProcess(Device(PairKeeper()))) as crew:
        experiment = driver.prepare(request, crew)
        with closing(driver.run(experiment, Journal(), crew)) as happening:
            for now in happening:
                print(f"{now.done} of {now.total}: {now.doing}", file=sys.stderr)
    return experiment.id


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("id", nargs="?", help="of a finished experiment; by default one is run")
    parser.add_argument("--card", type=Path, default=CARD)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--orderings", type=Path, default=FILE)
    args = parser.parse_args()
    found = report(Journal(), args.id or measured())
    where = dict(facts(found))["pair"]
    args.orderings.write_text(Orderings.of(found, where).to_json(), encoding="utf-8")
    args.card.write_text(
        card.fill(args.card.read_text(encoding="utf-8"), "decoders", of_card(found)),
        encoding="utf-8",
    )
    made = f"Made of {_command(found)} by `python -m tools.experiment`."
    args.page.write_text(f"{markdown(found, charts=True)}\n{made}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
