"""The look of draws in files, and the study that adds draws with other seeds to a run."""

from collections.abc import Callable
from dataclasses import replace

from decoders import InputError
from workbench.kinds.draw import Draw
from workbench.runs.draws import findings, grouped, seeds, texts_of
from workbench.runs.record import LARGEST_FILE, Result, Run
from workbench.runs.recorded import recorded
from workbench.show import draws, tables
from workbench.show.view import Body, Line, View, checked

# A link to a fold unfolds it.
UNFOLD = """addEventListener("click", (event) => {
  const link = event.target.closest(".wb-jump a");
  const place = link && document.querySelector(link.hash);
  if (place) place.open = true;
});"""


def body(run: Run) -> Body:
    content = (
        draws.first_words(run),
        draws.headline(run),
        tables.markup(draws.table(run)),
        draws.trees(run),
        draws.proof(run),
    )
    return Body("\n".join(content), UNFOLD)


def columns(run: Run) -> Callable[[Result], Line]:
    of_decoders, each_has = {each.decoder: each for each in findings(run)}, checked(run)

    def more(r: Result) -> Line:
        each = of_decoders.get(r.decoder)
        texts = [tuple(piece.id for piece in sample.pieces) for sample in texts_of([r])]
        return each_has(r) | {
            "drawn": len(texts),
            "different": len(set(texts)),
            "compared_with": each and each.compared,
            "compared_draws": each and each.draws,
            "p_holm": each and each.p,
            "total_variation": each and each.distance,
            "total_variation_of_exact": each and each.usual,
            "total_variation_of_exact_95": each and each.most,
            "exact_nearer": each and each.nearer,
            "unlike": each and each.unlike,
            "needed_draws": each and each.needed,
            "never_written": each and each.never,
        }

    return more


VIEW = View("Many draws", body, columns)


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
