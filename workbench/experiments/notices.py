"""A report's notices about unusable rows, and its list of failures."""

from collections import Counter

from workbench.experiments.report import Report
from workbench.experiments.rows import NEXT_TIMING, Kept
from workbench.studies.text import counted

MOST_NAMED = 5  # rows in one sentence


def notices(found: Report) -> list[str]:
    """Sentences that a reader must know before reading the figures."""
    now, said = found.progress, []
    if now.miscounted:
        left = now.total - now.done
        then = f"{left} of {now.total} items still have to be run: resume the experiment"
        said.append(
            "An earlier version of the workbench took results of other prompts for items of this "
            "experiment, or left items out; each result now stands under its own prompt, and "
            f"{then if left else 'nothing is missing: replace reports made by that version'}."
        )
    names = {part.name: found.names(part.name) for part in found.plan.parts}
    damaged = [
        f"{c.part}, {names[c.part][c.cell]}, {_item(c, number)}"
        for c in found.cells
        for number in c.damaged
    ]
    if damaged:
        more = f"; and {len(damaged) - MOST_NAMED} more" if len(damaged) > MOST_NAMED else ""
        said.append(
            f"{counted(len(damaged), 'row')} of the journal cannot be read and "
            f"{'is' if len(damaged) == 1 else 'are'} left out "
            f"({'; '.join(damaged[:MOST_NAMED])}{more}): resume the experiment to run "
            f"{'it' if len(damaged) == 1 else 'them'} again."
        )
    return said


def _item(cell: Kept, number: int) -> str:
    """ "prompt 3", "batch 1, timing 2"."""
    again, place = divmod(number, NEXT_TIMING)
    what = f"{'prompt' if cell.asked['batch_size'] == 1 else 'batch'} {place + 1}"
    return f"{what}, timing {again + 1}" if again else what


def errors(found: Report) -> list[str]:
    """One sentence for each kind of failure, with how often it happened."""
    counts: Counter[str] = Counter()
    for part in found.plan.parts:
        names = found.names(part.name)
        for cell in found.of_part(part.name):
            for row in cell.rows.values():
                unscored = [
                    o.scores["why"] for o in row.outputs if o.scores and "score" not in o.scores
                ]
                whole = [*row.errors, *(f"an output has no score: {why}" for why in unscored)]
                counts.update(f"{part.name}, {names[cell.cell]}: {why}" for why in whole)
    return [f"{words} ({counted(count, 'time')})" for words, count in counts.items()]
