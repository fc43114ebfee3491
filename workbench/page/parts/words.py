"""The small texts of the page as HTML; whatever a visitor or a model wrote is escaped."""

import base64
import html
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast
from urllib.parse import quote

from workbench.runs.estimates import label
from workbench.runs.events import At, Ended, Finished, Progress, Started
from workbench.runs.record import Run
from workbench.runs.recorded import recorded, recordings
from workbench.runs.trace import TrialRecord
from workbench.show.draws import visible
from workbench.show.files import WRITERS
from workbench.show.headline import headline as sentences
from workbench.show.steps import four_steps
from workbench.show.tables import facts, notes
from workbench.studies.batch import Batch
from workbench.studies.links import to_query
from workbench.studies.schemes import scheme_label
from workbench.studies.settings import Settings
from workbench.studies.start import Start
from workbench.studies.text import counted

TITLE = "Decoding Workbench"
SAYS = "Watch a language model continue a text in several ways, and see which is fastest."
JUMPS = (
    '<nav class="wb-jump" aria-label="On this page">'
    '<a href="#panels">Texts</a> <a href="#charts">Charts</a> <a href="#figures">Table</a> <a href="#run-link">Downloads</a></nav>'
)


def note(text: str, kind: str = "status") -> str:
    return f'<div role="{kind}">{html.escape(text)}</div>'


def progress(event: Started | Progress | Finished, kept: str = "") -> str:
    """Which decoder, token n of N, time left, and a bar for the whole study; `kept` is the run's id once a part of it is finished."""
    at, part, words = event.at, float(isinstance(event, Finished)), [where(event.at)]
    if isinstance(event, Progress):
        part = min(1.0, event.done / event.budget)
        words.append(f"token {event.done} of {event.budget}")
        if event.eta_seconds is not None:
            words.append(f"about {seconds_left(event.eta_seconds)} left")
    done = bar(min(1.0, (at.step + part) / at.steps))
    return f'{note(" · ".join(words))}<div data-run="{kept}">{done}</div>'


def where(at: At) -> str:
    """The job in words."""
    words = f"{label(at.decoder)} (measurement {at.job + 1} of {at.jobs})"
    if at.repeat:
        words += f" · repeat {at.repeat + 1}"
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
    """How the speeds of a run were timed, and on demand which of them cannot be trusted."""
    first, *others = notes(run) or [""]
    if not others:
        return note(first) if first else ""
    return f"<details><summary>{html.escape(first)} Why?</summary>{''.join(map(note, others))}</details>"


def outcome(run: Run) -> str:
    seconds = sum(cast(float, r.metrics.get("seconds") or 0) for r in run.results)
    timings = max((len(r.laps) for r in run.results), default=0)
    often = f", timed {timings} times" if timings > 1 else ""
    failed = dict.fromkeys(label(r.decoder) for r in run.results if r.errors)
    words: list[str] = [
        "Stopped" if run.cancelled else "Done",
        counted(len(run.results), "result"),
        f"{seconds:.1f} s of computing{often}",
    ]
    if failed:
        words.append(f"failed: {', '.join(failed)}")
    return note(" · ".join(words))


def tokens(count: tuple[int, int | None] | None, settings: Mapping[str, Any]) -> str:
    """The prompt's length, and what the models can hold of it beside the new tokens; then the chosen decoders."""
    budget = settings.get("max_new_tokens", Settings.max_new_tokens)
    return note(f"{_length(count, budget)} · {chosen(settings)}")


def chosen(settings: Mapping[str, Any]) -> str:
    """The decoders and the number of tokens that a form asks for."""
    names = settings["decoders"]
    shown = ", ".join(map(label, names)) if len(names) < 7 else counted(len(names), "decoder")
    repeats = settings.get("repeats") or 1
    often = f" · {repeats} repeats" if repeats != 1 else ""
    return (
        f"{settings.get('max_new_tokens', Settings.max_new_tokens) or 'no'} new tokens · {shown or 'no decoder'}{often}"
    )


def _length(count: tuple[int, int | None] | None, budget: Any) -> str:
    if count is None:
        return "Tokens are counted once the pair is loaded"
    used, limit = count
    if limit is None:
        return counted(used, "prompt token")
    room = limit - (int(budget) if isinstance(budget, (int, float)) else 0)
    over = ": too long; shorten the prompt or ask for fewer tokens" if used > room else ""
    return f"{used:,} of {max(room, 0):,} prompt tokens{over}"


def heading(side: str, run: Run) -> str:
    return f"<h2>{side} · {html.escape(when(run.created))} UTC · <bdi>{html.escape(run.title[:120])}</bdi></h2>"


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
    how = "Kept as" if recorded(run.id) is None else "Recorded beforehand:"
    name = "Not kept" if unkept else f'{how} <a href="?run={run.id}">run {run.id}</a>'
    return f'<div class="kept"><span>{name}</span><span>Download {files}</span></div>'


def _exports(run: Run) -> dict[str, str]:
    """The addresses of a kept run's files."""
    return {kind: f"export/{run.id}.{kind}" for kind in WRITERS}


def _carried(run: Run) -> dict[str, str]:
    """Addresses that hold the files themselves."""
    texts = {kind: WRITERS[kind](run) for kind in ("json", "csv")}
    return {kind: f"data:;base64,{base64.b64encode(text.encode()).decode()}" for kind, text in texts.items()}


def headline(run: Run) -> str:
    """What came out, and if the run was recorded beforehand, where and when."""
    first, *others = [html.escape(sentence) for sentence in sentences(run)] or [""]
    says = f"<h2>{first}</h2><p>{' '.join(others)}</p>" if first else ""
    return f'<div class="wb-headline">{JUMPS}{says}{source(run)}</div>'


def trail(run: Run) -> str:
    """The runs that a branch came from, as links; "" for any other run."""
    if not run.study.get("start"):
        return ""
    steps = Start.from_json(run.study["start"]).trail
    each = "".join(
        f'<a href="?run={html.escape(quote(step.run, safe=""))}">run {html.escape(step.run[:12])}</a> › '
        f"{html.escape(label(step.decoder))}, after {counted(step.at, 'token')}: “<bdi>{html.escape(visible(step.chosen))}</bdi>” › "
        for step in steps
    )
    return f'<nav class="wb wb-trail" aria-label="Branched from">{each}this run</nav>'


def header() -> str:
    """What this page is, and what writes here, by the pair that the first recorded run was made with."""
    where = recordings()[0].run.environment if recordings() else {}
    sizes = [f"{where[role]['parameters'] / 1e6:.1f}M" for role in ("target", "draft") if where.get(role)]
    counts = f' <span class="wide">({" and ".join(sizes)} parameters)</span>' if sizes else ""
    return f"<h1>{TITLE}</h1><p>{SAYS} Two tiny story models{counts} run here; they know no facts.</p>"


def source(run: Run) -> str:
    """Of a run that was recorded beforehand: what there is to see, when and on what, and how to have it measured here; "" for any other run."""
    found = recorded(run.id)
    if found is None:
        return ""
    where, press = run.environment, "Measure" if run.kind == Batch.kind else "Run"
    machine = f"{where.get('device_name', 'another machine')}, {counted(int(where.get('threads') or 1), 'thread')}"
    when = f'Recorded on {html.escape(run.created[:10])}<span class="wide"> on {html.escape(machine)}</span>'
    return f'<p class="source"><b>{html.escape(found.title)}:</b> {html.escape(found.says)} {when}. Press <b>{press}</b> to do it here.</p>'


def how_it_works(run: Run) -> str:
    """Drafting in four steps, from a round of this run; "" if it has none to show."""
    where, steps = four_steps(run)
    if not steps:
        return ""
    items = "".join(f"<li><b>{step.title}.</b> {_sentence(step.parts)}</li>" for step in steps)
    title = f'How speculative decoding works, in four steps <span class="wb-where">from {html.escape(where)}</span>'
    return f'<details class="wb wb-steps"><summary>{title}</summary><ol>{items}</ol></details>'


def _sentence(parts: Sequence[str | TrialRecord]) -> str:
    """Texts, and tokens with their marks; tokens next to each other are set apart."""
    each = [html.escape(part) if isinstance(part, str) else _marked(part) for part in parts]
    apart = [" " if not isinstance(a, str) and not isinstance(b, str) else "" for a, b in pairwise(parts)]
    return "".join(text + gap for text, gap in zip(each, [*apart, ""], strict=True))


def _marked(token: TrialRecord) -> str:
    shown = html.escape(token.text.strip(" ").replace("\n", "⏎") or "␣")
    return f'<span class="tok {token.fate}"><bdi>{shown}</bdi></span>'


def environment(run: Run) -> str:
    """What the figures were measured on."""
    items = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in facts(run))
    return f'<dl class="facts">{items}</dl>'
