"""The small texts of the page as HTML; whatever a visitor or a model wrote is escaped."""

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any

from decoders import smollm2
from workbench.kinds import registry
from workbench.models.presets import EMBEDDED, SMOLLM2, PairChoice
from workbench.runs.events import Finished, Progress, Started
from workbench.runs.figures import label, number
from workbench.runs.record import Run
from workbench.runs.store import Recording, recorded
from workbench.show import tables
from workbench.show.view import WRITERS
from workbench.show.web import explained
from workbench.studies.settings import Settings, counted, in_words, seconds_left, with_seed

TITLE = "Decoding Workbench"
NAME = f'<a class="wb-skip" href="#prompt">Skip to the prompt</a><h1>{TITLE}</h1>'
INSTEAD = "Below is an example."


def note(text: str, kind: str = "status") -> str:
    return f'<div role="{kind}">{html.escape(text)}</div>'


def faults(sentences: Sequence[str]) -> str:
    """A note for each sentence; a page that shows an example instead is greyed."""
    greyed = any(INSTEAD in sentence for sentence in sentences)
    mark = '<span class="wb-instead"></span>' if greyed else ""
    return "".join(note(sentence, "alert") for sentence in sentences) + mark


def left(id: str | None) -> str:
    """A note on a run whose page was left; `id` is None if nothing of it was kept."""
    link = f'Its finished part is kept as <a href="?run={id}">run {id}</a>'
    return (
        '<div role="status">Your last run was cut short: its page was closed, or the server '
        f"stopped. {link if id else 'Nothing of it was kept.'}</div>"
    )


def progress(event: Started | Progress | Finished, kept: str = "") -> str:
    """Decoder, token n of N, time left, a bar; `kept` is the run's id once a part is finished."""
    at, part, words = event.at, float(isinstance(event, Finished)), [event.at.words]
    if isinstance(event, Progress):
        part = min(1.0, event.done / event.budget)
        words.append(f"token {event.done} of {event.budget}")
    if not isinstance(event, Finished) and event.eta_seconds is not None:
        words.append(f"about {seconds_left(event.eta_seconds)} left")
    return (
        f'{note(" · ".join(words))}<div data-run="{kept}">'
        f"{bar(min(1.0, (at.job + part) / at.jobs))}</div>"
    )


def timing_on(event: Started | Progress | Finished) -> str:
    """A line for a run that is in view and still being timed; it is as high as the last one."""
    at = event.at
    return note(
        "Done." if at.laps == 1 else f"Done · timing {max(2, at.lap + 1)} of {at.laps}, quietly"
    )


def bar(part: float) -> str:
    return f'<div class="wb-track"><span style="width:{100 * part:.1f}%"></span></div>'


def timing(run: Run) -> str:
    first, *others = tables.notes(run) or [""]
    if not others:
        return note(first) if first else ""
    return (
        f"<details><summary>{html.escape(first)} Why?</summary>"
        f"{''.join(map(note, others))}</details>"
    )


def outcome(run: Run) -> str:
    seconds = sum(number(r, "seconds") or 0 for r in run.results)
    some = [r for r in run.results if any(s.tokens or s.finished != "cancelled" for s in r.samples)]
    timings = max((len(r.laps) for r in run.results), default=0)
    failed = dict.fromkeys(label(r.decoder) for r in run.results if r.errors)
    parts = [
        "Stopped" if run.cancelled else "Done",
        counted(len(some), "result"),
        f"{seconds:.1f} s of computing" + (f", timed {timings} times" if timings > 1 else ""),
        failed and f"failed: {', '.join(failed)}",
    ]
    return note(" · ".join(part for part in parts if part))


def chosen(settings: Mapping[str, Any]) -> str:
    names, repeats = settings["decoders"], settings.get("repeats") or 1
    shown = ", ".join(map(label, names)) if len(names) < 7 else counted(len(names), "decoder")
    return (
        f"{settings.get('max_new_tokens', Settings.max_new_tokens) or 'no'} new tokens · "
        f"{shown or 'no decoder'}{f' · {repeats} repeats' if repeats != 1 else ''}"
    )


def length(count: tuple[int, int | None] | None, settings: Mapping[str, Any]) -> str:
    if count is None:
        return "Tokens are counted once the pair is loaded"
    (used, limit), budget = count, settings.get("max_new_tokens", Settings.max_new_tokens)
    if limit is None:
        return counted(used, "prompt token")
    room = limit - (int(budget) if isinstance(budget, (int, float)) else 0)
    over = ": too long; shorten the prompt or ask for fewer tokens" if used > room else ""
    return f"{used:,} of {max(room, 0):,} prompt tokens{over}"


def heading(side: str, run: Run) -> str:
    return (
        f'<h2>{side} · <a href="?run={run.id}">run {run.id}</a> '
        f"<small>{html.escape(with_seed(run.settings))} · {html.escape(when(run.created))} "
        f"UTC · <bdi>{html.escape(run.title[:120])}</bdi></small></h2>"
    )


def when(created: str) -> str:
    return created[:16].replace("T", " ")


def settings_link(kind: str, data: Mapping[str, Any], start: Mapping[str, Any]) -> str:
    return (
        f'<a href="?{html.escape(registry.to_query(kind, data, start))}">Link to these settings</a>'
    )


def kept(run: Run, unkept: bool = False) -> str:
    """Links to a run and its files; if the run could not be kept, the links hold the files."""
    if unkept:
        name = "Not kept"
        addresses = {
            kind: f"data:;base64,{base64.b64encode(WRITERS[kind](run).encode()).decode()}"
            for kind in ("json", "csv")
        }
    else:
        how = "Kept as" if recorded(run.id) is None else "Recorded beforehand:"
        name = f'{how} <a href="?run={run.id}">run {run.id}</a>'
        addresses = {kind: f"export/{run.id}.{kind}" for kind in WRITERS}
    files = "".join(
        f'<a class="button" href="{address}" download="run-{run.id}.{kind}">{kind.upper()}</a>'
        for kind, address in addresses.items()
    )
    return f'<div class="kept"><span>{name}</span><span>Download {files}</span></div>'


def share(run: Run, unkept: bool = False) -> str:
    picture = "".join(
        f'<button type="button" class="button" data-save="{kind.lower()}">{kind}</button>'
        for kind in ("SVG", "PNG")
    )
    return (
        '<details class="wb-share"><summary>Share</summary><div>'
        f'{kept(run, unkept)}<div class="kept"><span>Picture {picture}</span></div></div></details>'
    )


def headline(run: Run, settled: bool = True) -> str:
    says = tables.verdict(run, settled)
    line = f'<p class="verdict">{explained(says)}</p>' if says else ""
    return f'<div class="wb-headline">{line}{source(run)}</div>'


def introduction(choice: PairChoice) -> str:
    writes, missing = f"In use: <b>{html.escape(choice.title)}</b>", ""
    if choice.preset is SMOLLM2:
        writes += ', under <a href="?tab=about" data-tab="about">two licences</a>'
    if choice.preset is EMBEDDED and not smollm2.at_hand():
        missing = f" {html.escape(smollm2.MISSING)}"
    return (
        "<h2>A small model guesses. A large one checks.</h2><p>The large model writes word by "
        "word, then again with guesses: green ones it kept, struck ones it refused or never "
        f'reached.</p><p class="models">{writes}; small models make things up.{missing}</p>'
    )


def more_examples(others: Sequence[Recording]) -> str:
    each = " · ".join(
        f'<a href="?run={other.run.id}">{html.escape(other.title)}</a>' for other in others
    )
    return f"<p>More recorded runs: {each}</p>" if each else ""


def source(run: Run) -> str:
    """A caption with the date and sampling of a run that was recorded beforehand; "" for others."""
    recording = recorded(run.id)
    if recording is None:
        return ""
    # Its words are not broken at their hyphens.
    settings = html.escape(in_words(run.settings)).replace("-", "&#8209;")
    return (
        f'<p class="source"><b>{html.escape(recording.title)}:</b> {html.escape(recording.says)} '
        f"Recorded on {run.created[:10]}, {settings}.</p>"
    )


def environment(run: Run) -> str:
    items = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>"
        for name, value in tables.facts(run)
    )
    return f'<dl class="facts">{items}</dl>'
