"""The look of draws in files."""

from collections.abc import Callable

from workbench.runs.draws import findings, texts_of
from workbench.runs.record import Result, Run
from workbench.show import draws, tables, verdicts
from workbench.show.view import Body, Line, View, checked

# A link to a fold unfolds it.
UNFOLD = """addEventListener("click", (event) => {
  const link = event.target.closest(".wb-jump a");
  const place = link && document.querySelector(link.hash);
  if (place) place.open = true;
});"""


def body(run: Run) -> Body:
    """The findings in sentences, the figures, and each decoder's tree."""
    content = (
        draws.first_words(run),
        verdicts.headline(run),
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
