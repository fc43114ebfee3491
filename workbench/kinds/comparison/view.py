"""The look of a comparison in files and beside another one."""

import html
from collections.abc import Callable

from workbench.runs.estimates import rows
from workbench.runs.record import Result, Run
from workbench.show import comparison, differences, strip, tables, web
from workbench.show.headline import headline
from workbench.show.view import Body, Line, View


def body(run: Run) -> Body:
    """The results in sentences, coloured text with its cards and replay, figures and charts."""
    says = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in headline(run))
    texts = "".join(
        f"<h3>{html.escape(r.decoder)}</h3><pre>{html.escape(r.alone.text)}</pre>"
        for r in run.results
        if r.repeat == 0
    )
    view = web.embed(strip.view(strip.run_panels(run), run.id))
    return Body(
        f"""{says}
<div id="panels">{texts}</div>
<h2>Figures</h2>
{tables.markup(tables.figures(run))}
{comparison.charts(rows(run.results), run.settings)}""",
        f'Workbench.show(document.getElementById("panels"), {view});',
    )


def columns(_: Run) -> Callable[[Result], Line]:
    return lambda r: {
        "identical_to_greedy": None if r.agreement is None else not r.agreement.differing,
        "finished": r.alone.finished,
        "error": r.error,
    }


VIEW = View("Decoders side by side", body, columns, differences.comparisons)
