"""Fill what ships about measured plans: documentation, the card, the page's orderings.

    python -m tools.experiment [ID]            of the plan `stories`: the orderings of the page, the
                                               model card and docs/stories.md
    python -m tools.experiment RULES DRAFTS    of the plans `rules` and `drafts`: docs/rules.md
    python -m tools.experiment CHATS           of the plan `chats`, on SmolLM2: docs/chats.md

Without an id it first runs the plan `stories` with the shipped pair, or finishes an experiment that
was stopped: nothing is done twice. Alone on two cores that takes a quarter of an hour.
"""

import argparse
import json
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from training import ROOT, SHIPPED, card
from workbench.experiments import driver
from workbench.experiments import plan as plans
from workbench.experiments.journal import Journal
from workbench.experiments.plan import ExperimentRequest
from workbench.experiments.report import (
    FILE,
    INTERVALS,
    Orderings,
    Report,
    as_markdown,
    facts,
    judged,
    markdown,
    orderings,
    report,
    table,
)
from workbench.experiments.workers import Crew, InProcess
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.show import tables

PLAN, CHATS = "stories", "chats"
CARD = SHIPPED / "README.md"
PAGE, RULES = ROOT / "docs" / "stories.md", ROOT / "docs" / "rules.md"
PAGES = {PLAN: PAGE, CHATS: ROOT / "docs" / "chats.md"}
HEAD = """# Rules and drafts, measured

Which verification rule keeps most of the same draft, and which source of drafts pays on which kind
of text: two [plans](experiments.md) on the embedded pair. Each published ordering that they test is
marked ✓ if it holds here, ✗ if the opposite does, ? if the interval of the difference includes 0.

```sh
decoding-workbench experiment rules --limit PROMPTS
decoding-workbench experiment drafts --limit PROMPTS
```

Without `--limit` they take 32 story openings and 60 prompts. Both go on where they were stopped.
`drafts` takes Spec-Bench's six categories in place of our prompts for whoever has its
`question.jsonl`: add `--data FOLDER`. In a checkout `python -m tools.experiment RULES DRAFTS`, with
the ids of the two experiments, writes this page.
"""


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


def part(found: Report, text: str) -> str:
    """A report as a part of a page, of its own text: its headings are one level lower."""
    lines = [f"#{line}" if line.startswith("#") else line for line in text.splitlines()]
    made = f"Made of {_command(found)} by `python -m tools.experiment`."
    return "\n".join(["", *lines, "", made, ""])


def _command(found: Report) -> str:
    return f"`python -m workbench experiment {found.plan.name}` (experiment {found.progress.id})"


def measured() -> str:
    """The id of an experiment of the plan that is finished, with the shipped pair and this code."""
    plan = plans.find(PLAN)
    request = ExperimentRequest(plan.source, f"{plan.name}.toml", None, None, None)
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
    parser.add_argument(
        "ids", nargs="*", metavar="ID", help="of a finished experiment; by default one is run"
    )
    parser.add_argument("--card", type=Path, default=CARD)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--orderings", type=Path, default=FILE)
    args = parser.parse_args()
    reports = [report(Journal(), id) for id in args.ids or [measured()]]
    names = [found.plan.name for found in reports]
    if len(names) > 1 or names[0] not in PAGES:
        parts = [part(found, markdown(found)) for found in reports]
        (args.page or RULES).write_text(HEAD + "".join(parts), encoding="utf-8")
        return
    (found,) = reports
    made = f"Made of {_command(found)} by `python -m tools.experiment`."
    page = f"{markdown(found)}\n{made}\n"
    (args.page or PAGES[found.plan.name]).write_text(page, encoding="utf-8")
    if found.plan.name != PLAN:
        return
    where = dict(facts(found))["pair"]
    progress, claims = found.progress, tuple(judged(found))
    all = Orderings(found.plan.name, progress.id, progress.created, where, claims)
    text = json.dumps(asdict(all), ensure_ascii=False, indent=1)
    args.orderings.write_text(f"{text}\n", encoding="utf-8")
    args.card.write_text(
        card.fill(args.card.read_text(encoding="utf-8"), "decoders", of_card(found)),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
