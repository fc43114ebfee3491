"""A comparison as plain data for the browser.

It has a panel for each decoder, which `workbench/web/strip.js` draws, and the one picture of all,
which `workbench/web/picture.js` draws.
"""

import dataclasses
import html
import json
from collections.abc import Sequence
from typing import Any

from decoders import Fate, Method
from workbench.runs.events import Progress
from workbench.runs.figures import Row, label, number, quickest, rows, unsteady
from workbench.runs.record import Agreement, PromptPart, Run
from workbench.runs.timing import round_seconds
from workbench.show import laws
from workbench.show.laws import Claim, served
from workbench.show.quantities import (
    BY_NAME,
    MISSING,
    QUANTITIES,
    Quantity,
    figure,
    range_text,
    significant,
    spread,
)
from workbench.show.web import TERMS
from workbench.studies.settings import method_of

ENDS = {"budget": "token limit reached", "cancelled": "stopped", "end of sequence": "finished"}
# The figures above each text, the certain one first (tokens/s if greedy did not run), and those
# below it; the others unfold.
TOP = ("block_efficiency", "x_greedy")
MAIN = ("perplexity", "repetition", "acceptance")
TOP_SERVED = ("first_token", "x_greedy")  # of an engine, whose passes are mostly not told
# The judge's verdicts on a greedy text that is not ours: the badge's kind and its words.
VERDICTS = {
    "near-tie": ("tie", "≠ near-tie"),
    "fault": ("differs", "≠ fault"),
    "cannot tell": ("tie", "≠ differs, cannot tell why,"),
}
UNUSED = (Fate.REJECTED, Fate.DISCARDED)
SHORT = {"block_efficiency": "tokens per pass"}  # where a column is narrow
PROMPT_SHOWN = 400  # characters of the prompt repeated above each panel's text
NEAR_TIE = (
    "A near-tie: the two likeliest tokens differ by less than the rounding measured between passes "
    "of different shapes."
)


Panel = dict[str, Any]  # of one decoder, for strip.js


def waiting(method: Method, claim: Claim, prompt: str, parts: Sequence[PromptPart] = ()) -> Panel:
    """A decoder whose turn has not come.

    Args:
        method: the decoder
        claim: its claim on the output with the settings of the run
        prompt: the prompt
        parts: what a chat template wrote of it and what not; () if that is not known
    """
    end = _end([(part.text, part.template) for part in parts] or [(prompt, False)])
    return {
        "decoder": method.name,
        "title": label(method.name),
        "stands_for": method.stands_for,
        "summary": method.summary,
        **_claimed(claim),
        "status": "waiting",
        "state": "waiting",
        "prompt": "".join(text for text, _ in end),
        "parts": end if parts else [],
        "rule": laws.rule(method),
        "source": source(method),
        "head": {},
        "tokens": [],
        "rounds": [],
        "provisional": False,
        "clock": [],
        "passes": None,
        "pace": "",
        "marks": [],
        "numbers": [],
        "others": [],
        "badge": None,
        "unsteady": "",
        "notes": [],
        "error": None,
    }


def _claimed(claim: Claim) -> Panel:
    return {"claim": claim.chip, "claim_help": claim.help, "exact": claim.exact}


def running(panel: Panel, progress: Progress | None = None) -> Panel:
    """A decoder at work.

    Until it is done, it shows only the refused and unreached drafts of its rounds, and no likely
    alternatives of its tokens: data sent ten times a second takes time from it.
    """
    if progress is None:
        return {**panel, "status": "running", "state": "reading the prompt"}
    seconds = progress.seconds
    return {
        **panel,
        "status": "running",
        "state": f"token {progress.done} of {progress.budget}",
        "tokens": [dataclasses.replace(t, alternatives=[]) for t in progress.tokens],
        "rounds": [
            dataclasses.replace(r, trials=[t for t in r.trials if t.fate in UNUSED])
            for r in progress.rounds
        ],
        "provisional": progress.provisional,
        "pace": f"{significant(progress.done / seconds)} tokens/s so far" if seconds else "",
    }


def finished(panel: Panel, row: Row, fellows: Sequence[str] = ()) -> Panel:
    """A decoder that is done: the text of its first repeat, the figures of all.

    Args:
        row: its results; the badge and the error are of the first
        fellows: the decoders whose texts differ from its own by chance alone
    """
    first, end = row.first, row.first.alone.finished or ""
    pace = figure(BY_NAME["speed"], row)
    return {
        **panel,
        **(_claimed(served(first.server)) if first.server else {}),
        "title": row.label,
        "status": "failed" if first.error else "done",
        "state": "failed" if first.error else ENDS.get(end, end),
        "tokens": first.alone.tokens,
        "rounds": first.alone.rounds,
        "clock": round_seconds(first),
        "passes": number(first, "target_calls"),
        "pace": "" if first.error or pace == MISSING else f"{pace} tokens/s",
        "numbers": [] if first.error else _figures(row, fellows),
        "others": [{"seed": r.seed, "text": r.alone.text} for r in row.results[1:] if not r.error],
        "badge": badge(first.agreement) if first.agreement else None,
        "unsteady": "; ".join(unsteady(row)),
        "notes": list(dict.fromkeys(remark for r in row.results for remark in r.remarks)),
        "error": first.error,
    }


def packed(panel: Panel) -> str:
    return json.dumps(panel, default=_fields, separators=(",", ":"))


def _figures(row: Row, fellows: Sequence[str]) -> list[dict[str, Any]]:
    first, second = TOP_SERVED if row.first.server else TOP
    top = (first, second if any(row.greedy) else "speed")
    details = {q.name: _detail(q, row) for q in QUANTITIES}
    if fellows:
        others = ", ".join(map(label, fellows)) if len(fellows) < 3 else f"{len(fellows)} others"
        details["perplexity"] += f" · differs from {others} by chance alone"
    return [
        {
            "name": q.name,
            "label": SHORT.get(q.name, q.label),
            "value": figure(q, row),
            "detail": details[q.name],
            "help": TERMS.get(SHORT.get(q.name, q.label), q.help),
            "place": "top" if q.name in top else "main" if q.name in MAIN else "",
        }
        for q in QUANTITIES
    ]


def _end(parts: Sequence[tuple[str, bool]]) -> list[tuple[str, bool]]:
    end, left = list[tuple[str, bool]](), PROMPT_SHOWN
    for text, template in reversed(parts):
        if len(text) > left:
            return [("…" + text[len(text) - left :], template), *end]
        end, left = [(text, template), *end], left - len(text)
    return end


def _detail(quantity: Quantity, row: Row) -> str:
    value, counts = spread(quantity, row), quantity.counts(row.first)
    how, timings = "", len(row.first.laps)
    if len(row.results) > 1:
        how, counts = f"mean of {len(row.results)} repeats", counts and f"the first: {counts}"
    elif quantity.timed and value and value.range:
        how = f"{range_text(quantity, value.range)} in {timings} timings"
    return " · ".join(filter(None, (how, counts)))


def _fields(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}


def badge(agreement: Agreement) -> dict[str, str]:
    name = label(agreement.reference)
    if not agreement.differing:
        return {
            "kind": "same",
            "text": f"✓ identical to {name}",
            "help": f"Every token equals that of {name} decoding.",
        }
    at = "" if agreement.differs_at is None else f" at token {agreement.differs_at + 1}"
    if agreement.verdict in VERDICTS:
        kind, text = VERDICTS[agreement.verdict]
        return {"kind": kind, "text": f"{text}{at}", "help": agreement.says}
    gap = "" if agreement.gap is None else f" (target gap {agreement.gap:.2g} nats)"
    if agreement.near_tie:
        return {"kind": "tie", "text": f"≠ near-tie{at}{gap}", "help": NEAR_TIE}
    return {
        "kind": "differs",
        "text": f"≠ differs{at}{gap}",
        "help": f"Its output should be that of {name} decoding here, but is not.",
    }


COPIES = ("lookup", "suffix")  # sources whose drafts stand in the text already


def run_panels(run: Run) -> list[str]:
    lines = rows(run.results)
    first, sure = quickest(lines)
    fellows = {
        d: [f for f in group if f != d]
        for group in laws.by_chance(run.settings, run.decoders)
        for d in group
    }
    panels = []
    for row in lines:
        method = method_of(row.decoder, run.settings.get(row.decoder, {}))
        claim = laws.claim_in(run.settings, row.decoder)
        panel = {
            **waiting(method, claim, run.title, row.first.alone.prompt_parts),
            "marks": ["fastest"] if sure and row is first and len(lines) > 1 else [],
            "head": laws.head(run.environment, method),
        }
        panels.append(packed(finished(panel, row, fellows.get(row.decoder, []))))
    return panels


def source(method: Method) -> str:
    """Where a decoder's drafts come from.

    Returns:
        "text" if they are copied from the text so far, "head" or "model" if one of these writes
        them, "counts" for anything else; "" if it drafts nothing
    """
    own = getattr(method, "parts", (None,))[0]
    if own is None and not method.uses_draft:
        return ""
    if method.uses_head:
        return "head"
    if method.uses_draft:
        return "model"
    return "text" if getattr(own, "name", "") in COPIES else "counts"


# What stands there until the texts of a run begin to grow in it.
BLANK = """<wb-picture id="picture" class="wb" data-shown='{"panels":[]}'></wb-picture>"""
CUTS = ("temperature", "top_k", "top_p", "min_p", "top_n_sigma")


def cuts(run: Run) -> dict[str, Any]:
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
    shown = data.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;")
    plain = f"<noscript>{texts}</noscript>"
    return f'<wb-picture id="picture" class="wb" data-shown=\'{shown}\'>{plain}</wb-picture>'
