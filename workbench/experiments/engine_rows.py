"""Load on a server as a result (result)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from decoders import InputError
from workbench.engines.load import Load
from workbench.engines.record import Record, Speculation
from workbench.experiments.engine_cells import EngineCell
from workbench.measuring import served
from workbench.runs.record import Result, Sample
from workbench.runs.trace import Energy, Server

PRECISION = 4  # decimals of the seconds at which pieces arrive


def result(
    cell: EngineCell, prompts: Sequence[int], load: Load, energy: Energy, server: Server
) -> Result:
    """The result of a load.

    Args:
        cell: what was asked
        prompts: numbers of the prompts in their set
        load: what came
        energy: while it was open
        server: what answered

    Raises:
        InputError: if the server does not tell how many tokens it wrote
    """
    counts = [record.count for record in load.records if record.count is not None]
    if len(counts) < len(load.records):
        raise untold(cell.engine)
    samples = [_sample(*each) for each in zip(prompts, load.records, strict=True)]
    found = served.result(cell.job, load.records, samples, load.seconds, server)
    (lap,) = found.laps
    metrics = {**found.metrics, "joules": energy.joules, "energy_source": energy.source}
    if load.speculation is not None:
        metrics |= _drafts(load.speculation, sum(counts), len(counts))
    return replace(found, metrics=metrics, energy=energy, laps=[replace(lap, energy=energy)])


def untold(engine: str) -> InputError:
    """The error of a server that does not tell how many tokens it writes."""
    return InputError(f"Engine {engine} does not tell how many tokens it writes; it has no speed.")


def _sample(prompt: int, record: Record) -> Sample:
    steps = record.speculation.per_step if record.speculation else ()
    return Sample(
        prompt,
        0,  # of the text; only the server knows its tokens
        record.text,
        # The first token comes from the pass over the prompt.
        gained=[1, *(accepted + 1 for _, accepted in steps)] if steps else [],
        drafted=[0, *(drafted for drafted, _ in steps)] if steps else [],
        ids=list(record.tokens or ()),
        arrivals=[round(at, PRECISION) for at, _ in record.arrivals],
        count=record.count,
        finished=served.ENDS.get(record.finished or "", record.finished),
    )


def _drafts(told: Speculation, new: int, requests: int) -> dict[str, Any]:
    """The figures of all draft tokens together, by the names of metrics."""
    calls = None if told.steps is None else requests + told.steps
    return {
        "drafted": told.drafted,
        "accepted": told.accepted,
        "acceptance_rate": told.accepted / told.drafted if told.drafted else None,
        "target_calls": calls,
        "block_efficiency": new / calls if calls else None,
        "verifications": told.steps,
    }
