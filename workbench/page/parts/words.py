"""The small texts of the page as HTML; whatever a visitor or a model wrote is escaped."""

import base64
import html
from collections.abc import Mapping
from typing import Any

from workbench.runs.estimates import label
from workbench.runs.events import At, Ended, Finished, Progress, Started
from workbench.runs.record import Run
from workbench.show.files import WRITERS
from workbench.show.tables import facts, notes
from workbench.studies.links import to_query
from workbench.studies.schemes import scheme_label
from workbench.studies.text import counted


def note(text: str, kind: str = "status") -> str:
    return f'<div role="{kind}">{html.escape(text)}</div>'


def progress(event: Started | Progress | Finished) -> str:
    """Which decoder, token n of N, time left, and a bar for the whole study."""
    at, part, words = event.at, float(isinstance(event, Finished)), [where(event.at)]
    if isinstance(event, Progress):
        part = min(1.0, event.done / event.budget)
        words.append(f"token {event.done} of {event.budget}")
        if event.eta_seconds is not None:
            words.append(f"about {seconds_left(event.eta_seconds)} left")
    return note(" · ".join(words)) + bar(min(1.0, (at.step + part) / at.steps))


def where(at: At) -> str:
    """The job in words."""
    words = f"{label(at.decoder)} ({at.job + 1} of {at.jobs})"
    if at.lap:
        words += f" · timing {at.lap + 1} of {at.laps}"
    if at.batch_size == 1:
        return words
    return f"{words} · batch size {at.batch_size}: {scheme_label(at.decoder, at.batch_size, at.scheme)}"


def seconds_left(seconds: float) -> str:
    """ "5 s", "3 min", "2 h": as exact as a guess is."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def bar(part: float) -> str:
    """How much is done, from 0 to 1."""
    return f'<div class="wb-track"><span style="width:{100 * part:.1f}%"></span></div>'


def ended(event: Ended) -> str:
    """How a study ended, and if its run could not be kept, why."""
    kept = note(f"{event.unkept} Download this run below, or it is lost.", "alert") if event.unkept else ""
    return outcome(event.run) + kept


def timing(run: Run) -> str:
    """How the speeds of a run were timed, and which of them cannot be trusted."""
    return "".join(note(text) for text in notes(run))


def outcome(run: Run) -> str:
    seconds = sum(r.metrics.get("seconds") or 0 for r in run.results)
    failed = dict.fromkeys(label(r.decoder) for r in run.results if r.errors)
    words = [
        "Stopped" if run.cancelled else "Done",
        counted(len(run.results), "result"),
        f"{seconds:.1f} s of computing",
    ]
    if failed:
        words.append(f"failed: {', '.join(failed)}")
    return note(" · ".join(words))


def tokens(count: tuple[int, int | None] | None, budget: float | None) -> str:
    """The prompt's length, and what the models can hold of it beside the new tokens."""
    if count is None:
        return note("Tokens are counted once the pair is loaded.")
    used, limit = count
    if limit is None:
        return note(counted(used, "prompt token"))
    room = limit - int(budget or 0)
    over = ": too long; shorten the prompt or ask for fewer tokens" if used > room else ""
    return note(f"{used:,} of {max(room, 0):,} prompt tokens{over}")


def heading(side: str, run: Run) -> str:
    return f"<h2>{side} · {html.escape(when(run.created))} · {html.escape(run.title[:120])}</h2>"


def when(created: str) -> str:
    """A date for lists, to the minute (UTC)."""
    return created[:16].replace("T", " ")


def settings_link(kind: str, data: Mapping[str, Any]) -> str:
    """A link that fills the form of this kind of study as it stands."""
    return f'<a href="?{html.escape(to_query(kind, data))}">Link to these settings</a>'


def kept(run: Run, unkept: bool = False) -> str:
    """Where the run is found again, and its files. Those of a run that could not be kept are in the page itself."""
    files = "".join(
        f'<a class="button" href="{address}" download="run-{run.id}.{kind}">{kind.upper()}</a>'
        for kind, address in (_carried(run) if unkept else _exports(run)).items()
    )
    name = "Not kept" if unkept else f'Kept as <a href="?run={run.id}">run {run.id}</a>'
    return f'<div class="kept"><span>{name}</span><span>Download {files}</span></div>'


def _exports(run: Run) -> dict[str, str]:
    """The addresses of a kept run's files."""
    return {kind: f"export/{run.id}.{kind}" for kind in WRITERS}


def _carried(run: Run) -> dict[str, str]:
    """Addresses that hold the files themselves."""
    texts = {kind: WRITERS[kind](run) for kind in ("json", "csv")}
    return {kind: f"data:;base64,{base64.b64encode(text.encode()).decode()}" for kind, text in texts.items()}


def environment(run: Run) -> str:
    """What the figures were measured on."""
    items = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in facts(run))
    return f'<dl class="facts">{items}</dl>'
