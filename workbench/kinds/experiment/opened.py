"""A prompt of an experiment as a run: the decoders that took turns on it, side by side."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from decoders import InputError, catalog
from workbench.experiments.journal import CellRows, ItemRow, Journal
from workbench.experiments.plan import GRID, pair_name
from workbench.kinds.comparison.study import Comparison
from workbench.runs.record import Run
from workbench.studies.schemes import BASELINE
from workbench.studies.settings import Settings

SHARED = ("max_new_tokens", *GRID, "temperature_last", "chat_template", "system")


def prompts(cell: CellRows) -> list[int]:
    """Numbers of a cell's prompts that can be opened."""
    return sorted(_traced(cell))


def as_run(journal: Journal, id: str, part: str, cell: str, prompt: int) -> Run:
    """One prompt of a cell, beside the other decoders that took turns on it, as a comparison.

    If several cells have the same decoder with other settings, the chosen one is shown.

    Args:
        id: the experiment's id
        cell: the cell's id
        prompt: the prompt's number in its set

    Returns:
        the run, whose id is always the same, so that it is kept once

    Raises:
        InputError: if there is no such experiment, cell or prompt, if its set of prompts cannot be
            read here, or if the prompt's rounds were not kept
    """
    entry, cells = journal.experiment(id), journal.cells(id)
    chosen = next((c for c in cells if (c.part, c.cell) == (part, cell)), None)
    if chosen is None:
        raise InputError(f"Experiment {id} has no such cell; choose one of its decoders.")
    if prompt not in (known := prompts(chosen)):
        numbers = ", ".join(str(n + 1) for n in known) or "none yet"
        raise InputError(
            f"The prompts of this cell that can be opened are {numbers}: all rounds are kept only "
            "for the first prompts."
        )
    plan, sets = entry.request.read()
    names = dict.fromkeys(pair_name(choice) for each in plan.parts for choice in each.pairs)
    places = dict(zip(names, entry.environment.get("pairs", []), strict=False))
    beside = _beside(chosen, cells, prompt)
    rows = [_traced(c)[prompt] for c in beside]
    study = Comparison(
        sets[chosen.spec["prompts"]].text(prompt),
        Settings(
            tuple(catalog[c.spec["decoder"]](**c.spec["settings"]) for c in beside),
            **{name: chosen.spec[name] for name in SHARED if name in chosen.spec},
            seed=rows[0].result.seed,  # the cell's is that of the set's first prompt
            timings=1,  # of those of a prompt, one is shown
        ),
    )
    return Run(
        hashlib.sha256("/".join((id, part, cell, str(prompt))).encode()).hexdigest()[:12],
        entry.created, study.kind, study.title, study.to_json(),
        places.get(chosen.spec["pair"], {}),
        [replace(row.result, samples=[replace(row.outputs[0], prompt=0)]) for row in rows],
    )  # fmt: skip


def _traced(cell: CellRows) -> dict[int, ItemRow]:
    """The rows of a cell that can be opened, by the number of their prompt."""
    return {
        row.outputs[0].prompt: row
        for row in reversed(cell.rows.values())
        if len(row.outputs) == 1 and row.outputs[0].tokens and not row.errors
    }


def _beside(chosen: CellRows, cells: Sequence[CellRows], prompt: int) -> list[CellRows]:
    """The cells of its block that have the prompt, one for each decoder, greedy first."""
    fellows = [c for c in cells if c.block == chosen.block and c.part == chosen.part]
    one = {c.spec["decoder"]: c for c in [*reversed(fellows), chosen] if prompt in _traced(c)}
    return sorted(one.values(), key=lambda c: c.spec["decoder"] != BASELINE)
