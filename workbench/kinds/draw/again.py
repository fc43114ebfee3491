"""More draws for a run of draws: the study that draws with other seeds."""

from dataclasses import replace

from decoders import InputError
from workbench.kinds.draw.study import Draw
from workbench.runs.draws import grouped, seeds
from workbench.runs.record import LARGEST_FILE, Run
from workbench.runs.recorded import recorded


def again(
    run: Run, draws: int | None = None, most: int | None = None, largest: int = LARGEST_FILE
) -> Draw:
    """The study that draws with the seeds after those of a run, and is otherwise the same.

    Args:
        draws: texts that each decoder draws; by default as many as it has, which doubles their
            number
        most: the most draws that this place allows at once
        largest: bytes of the run with all of them

    Raises:
        InputError: if nothing can be added
    """
    if run.kind != Draw.kind or not run.results:
        raise InputError(
            "Only a run of draws can be drawn again with other seeds; this one has none."
        )
    if recorded(run.id) is not None:
        raise InputError(
            "A run that was recorded beforehand stays as it is: press Draw for one of your own, "
            "and add draws to that."
        )
    study = Draw.from_json(run.study)
    if study.settings.temperature == 0:
        raise InputError(
            "At temperature 0 every seed writes the same text; raise the temperature in a new run."
        )
    count = max(sum(len(result.samples) for result in results) for results in grouped(run).values())
    if draws is None:
        range_ = next(field.metadata for field in Draw.own() if field.name == "draws")
        draws = min(max(count, range_["low"]), range_["high"], most or range_["high"])
    study = replace(
        study,
        draws=draws,
        settings=replace(study.settings, seed=max(each.stop for each in seeds(run.results))),
    )
    if len(run.dumps()) * (1 + study.draws / count) > largest:
        raise InputError(
            f"With {draws:,} more draws this run would exceed {largest // 2**20} MB; "
            "draw fewer, or begin a new run."
        )
    return study
