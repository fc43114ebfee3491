"""The look of advice in files and on the page."""

import html

from workbench.kinds.advice import load_report
from workbench.kinds.advice.findings import sentences
from workbench.runs.record import Run
from workbench.show.tables import markup
from workbench.show.view import Body, View


def answer(run: Run) -> str:
    """The findings as HTML."""
    warning, found, table = sentences(run)
    says = f'<div role="alert">{html.escape(warning)}</div>' if warning else ""
    own = f"{says}<p>{html.escape(found)}</p>{markup(table) if table else ''}"
    return own + under_load(run)


def under_load(run: Run) -> str:
    """The findings on load as HTML; "" if there are none."""
    if not (loads := load_report.loads_of(run)):
        return ""
    if isinstance(loads, str):
        return f"<p>{html.escape(loads)}</p>"
    says = load_report.sentences(loads)
    return (
        "<h4>Under load</h4>"
        + "".join(f"<p>{html.escape(words)}</p>" for words in says)
        + markup(load_report.table(loads))
        + f'<div class="wb-charts">{load_report.chart(loads)}</div>'
    )


VIEW = View("Advice", lambda run: Body(answer(run)))
