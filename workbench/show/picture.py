"""The one picture of a comparison: its data, which `workbench/web/picture.js` draws."""

import html
import json
from collections.abc import Sequence
from typing import Any

from workbench.runs.record import Run
from workbench.show.panel import run_panels

# What stands there until the texts of a run begin to grow in it.
BLANK = """<wb-picture id="picture" class="wb" data-shown='{"panels":[]}'></wb-picture>"""
CUTS = ("temperature", "top_k", "top_p", "min_p", "top_n_sigma")


def cuts(run: Run) -> dict[str, Any]:
    """The settings that tell which tokens may be drawn."""
    return {name: run.settings.get(name) for name in CUTS}


def picture(
    run: Run, panels: Sequence[str] | None = None, *, state: str = "", play: bool = False
) -> str:
    """The element in which a browser draws the rounds of a comparison, recorded or not.

    It draws itself wherever it is put into a page that has `web.head()`; without scripts it shows
    the texts.

    Args:
        run: the run
        panels: what `run_panels` gives for it, if that is at hand
        state: what it shows first: "" for one plain decoder and one that guesses, "all" for all
            decoders on the clock, or the name of the decoder that guesses
        play: whether it plays at once, if the reader does not want less motion

    Returns:
        HTML of one element with the id "picture"; "" for runs of other kinds or without a text
    """
    panels = run_panels(run) if panels is None else panels
    if not panels:
        return ""
    about = {"run": run.id, "settings": cuts(run), "state": state, "play": play}
    data = f'{json.dumps(about)[:-1]},"panels":[{",".join(panels)}]}}'
    texts = "".join(
        f"<p>{html.escape(r.decoder)}: {html.escape(r.alone.text)}</p>"
        for r in run.results
        if r.repeat == 0
    )
    # In single quotes: the many double ones of JSON stay as short as they are.
    kept = data.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;")
    plain = f"<noscript>{texts}</noscript>"
    return f'<wb-picture id="picture" class="wb" data-shown=\'{kept}\'>{plain}</wb-picture>'
