"""The small texts of the page as HTML; whatever a visitor or a model wrote is escaped."""

import html

from workbench.measuring.session import Progress, Started
from workbench.runs.store import Run
from workbench.show import files as export


def note(text: str, kind: str = "status") -> str:
    return f'<div role="{kind}">{html.escape(text)}</div>'


def progress(event: Started | Progress, job: int, jobs: int) -> str:
    """Which decoder, token n of N, time left, and a bar for the whole comparison."""
    words, part = [event.decoder.replace("_", " ") + f" ({job + 1} of {jobs})"], 0.0
    if isinstance(event, Progress):
        part = len(event.tokens) / event.budget
        words.append(f"token {len(event.tokens)} of {event.budget}")
        if event.eta_seconds is not None:
            words.append(f"about {max(1, round(event.eta_seconds))} s left")
    return note(" · ".join(words)) + bar((job + part) / jobs)


def bar(part: float) -> str:
    """How much is done, from 0 to 1."""
    return f'<div class="wb-track"><span style="width:{100 * part:.1f}%"></span></div>'


def ended(run: Run) -> str:
    seconds = sum(r.metrics["seconds"] or 0 for r in run.results)
    failed = [r.decoder for r in run.results if r.error]
    words = [
        "Stopped" if run.cancelled else "Done",
        f"{len(run.results)} results",
        f"{seconds:.1f} s of the models' work",
    ]
    if failed:
        words.append(f"failed: {', '.join(failed)}")
    return note(" · ".join(words))


def tokens(count: tuple[int, int | None] | None, budget: float | None) -> str:
    """The prompt's length against what the models can hold."""
    if count is None:
        return note("Tokens are counted once the pair is loaded.")
    used, limit = count
    text = f"{used:,} token{'' if used == 1 else 's'}"
    if limit is None:
        return note(text)
    room = limit - int(budget or 0)
    over = " — too long, shorten the prompt or ask for fewer tokens" if used > room else ""
    return note(f"{text} of at most {max(room, 0):,} (the models hold {limit:,}, new tokens included){over}")


def heading(side: str, run: Run) -> str:
    return f"<h2>{side} · {html.escape(run.created[:16].replace('T', ' '))} · {html.escape(run.prompt[:120])}</h2>"


def kept(run: Run) -> str:
    """Where the run is found again, and its exports."""
    files = "".join(
        f'<a class="button" href="export/{run.id}.{kind}" download>{kind.upper()}</a>' for kind in export.WRITERS
    )
    return f'<div class="kept"><span>Kept as <a href="?run={run.id}">run {run.id}</a></span><span>Download {files}</span></div>'


def facts(run: Run) -> str:
    """What the figures were measured on."""
    items = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in export.facts(run))
    return f'<dl class="facts">{items}</dl>'
