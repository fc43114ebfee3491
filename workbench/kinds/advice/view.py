"""The look of advice in files and on the page."""

import html

from workbench.kinds.advice.findings import sentences, unread
from workbench.runs.record import Run
from workbench.show.tables import markup
from workbench.show.view import Body, View


def answer(run: Run) -> str:
    """The findings as HTML."""
    warning, found, table = sentences(run)
    says = f'<div role="alert">{html.escape(warning)}</div>' if warning else ""
    own = f"{says}<p>{html.escape(found)}</p>{markup(table) if table else ''}"
    return own + "".join(f"<p>{html.escape(words)}</p>" for words in unread(run))


VIEW = View("Advice", lambda run: Body(answer(run)))
