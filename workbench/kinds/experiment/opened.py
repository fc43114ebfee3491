"""A prompt of an experiment as a run: the decoders that took turns on it, side by side."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from decoders import InputError, catalog
from workbench.experiments.journal import Journal
from workbench.experiments.plan import pair_name
from workbench.experiments.rows import Kept, Row
from workbench.kinds.comparison.study import Comparison
from workbench.runs.record import Result, Run
from workbench.studies.schemes import BASELINE
from workbench.studies.settings import Settings

SHARED = ("max_new_tokens", "temperature", "top_k", "top_p", "seed", "chat_template")


def prompts(cell: Kept) -> list[int]:
    """Numbers of a cell's prompts that can be opened."""
    return sorted(row.outputs[0].prompt for row in cell.rows.values() if _traced(row))


def as_run(journal: Journal, id: str, part: str, cell: str, prompt: int) -> Run:
    """One prompt of a cell, beside the other decoders that took turns on it, as a comparison.

    If several cells have the same decoder with other settings, the chosen one is shown.

    Args:
        journal: the file that keeps the experiment
        id: the experiment's id
        part: the part of its plan
        cell: the cell's id
        prompt: the prompt's number in its set

    Returns:
        the run, whose id is always the same, so that it is kept once

    Raises:
        InputError: if there is no such experiment, cell or prompt, if its set of prompts cannot be
            read here, or if the prompt's rounds were not kept
    """
    entry, cells = journal.experiment(id), journal.kept(id)
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
    methods = [catalog[c.asked["decoder"]](**c.asked["settings"]) for c in beside]
    settings = Settings(tuple(methods), **{name: chosen.asked[name] for name in SHARED})
    study = Comparison(sets[chosen.asked["prompts"]].text(prompt), settings)
    results = [_result(c, prompt) for c in beside]
    named = hashlib.sha256("/".join((id, part, cell, str(prompt))).encode()).hexdigest()[:12]
    where = places.get(chosen.asked["pair"], {})
    return Run(named, entry.created, study.kind, study.title, study.to_json(), where, results)


def _traced(row: Row) -> bool:
    return len(row.outputs) == 1 and bool(row.outputs[0].tokens) and not row.errors


def _row(cell: Kept, prompt: int) -> Row | None:
    rows = (row for row in cell.rows.values() if _traced(row))
    return next((row for row in rows if row.outputs[0].prompt == prompt), None)


def _beside(chosen: Kept, cells: Sequence[Kept], prompt: int) -> list[Kept]:
    """The cells of its block that have the prompt, one for each decoder, greedy first."""
    fellows = [c for c in cells if c.block == chosen.block and c.part == chosen.part]
    one = {c.asked["decoder"]: c for c in [*reversed(fellows), chosen] if _row(c, prompt)}
    return sorted(one.values(), key=lambda c: c.asked["decoder"] != BASELINE)


def _result(cell: Kept, prompt: int) -> Result:
    row = _row(cell, prompt)
    assert row is not None  # those without are not beside it
    return replace(row.result, samples=[replace(row.outputs[0], prompt=0)])
