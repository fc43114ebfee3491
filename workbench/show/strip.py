"""A result as a panel shows it: plain data for assets/web/strip.js, in the live page and in the exported report."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

from decoders import Fate, catalog
from workbench.runs.store import GreedyCheck, RoundRecord, Run, RunResult, TokenRecord
from workbench.show.quantities import NUMBERS, by_decoder, shown

LAWS = {
    "target": "the target sampled alone",
    "beam sampling": "beam sampling with the target",
    "beam sampling per layer": "beam sampling with the target, given each layer's width",
}
CLAIMS = {"target": "lossless", "beam sampling": "as beam sampling", "beam sampling per layer": "as beam sampling"}
NO_LAW = "It does not keep the distribution of sampling: it goes for speed or for likelier text."
ENDS = {"budget": "all tokens used", "cancelled": "stopped", "end of sequence": "text ended"}
PROMPT_SHOWN = 400  # characters of the prompt repeated above each panel's text


def pack(data: Any) -> str:
    """Compact JSON of dataclasses and plain data."""
    return json.dumps(data, default=_fields, separators=(",", ":"))


def _fields(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}


def panel(
    decoder: str,
    prompt: str,
    *,
    status: str,
    state: str = "",
    tokens: Sequence[TokenRecord] = (),
    rounds: Sequence[RoundRecord] = (),
    provisional: bool = False,
    repeats: Sequence[RunResult] = (),
    law: str | None = None,
) -> dict[str, Any]:
    """What one panel shows. `status` is "waiting", "running", "done" or "failed", `state` the same in words;
    `repeats` are the results of this decoder so far: the figures come from all of them, the badge and the error from the first."""
    method = catalog[decoder]
    law = law if repeats else method.law
    check = repeats[0].greedy_check if repeats else None
    return {
        "decoder": decoder,
        "title": decoder.replace("_", " "),
        "claim": CLAIMS.get(law) or ("lossy" if method.uses_draft else "search"),
        "claim_help": f"Its output is distributed exactly as that of {LAWS[law]}." if law else NO_LAW,
        "summary": method.summary,
        "status": status,
        "state": state,
        "prompt": prompt if len(prompt) <= PROMPT_SHOWN else "…" + prompt[-PROMPT_SHOWN:],
        "tokens": tokens,
        "rounds": rounds,
        "provisional": provisional,
        "numbers": [
            {
                "name": n.name,
                "label": n.label,
                "value": shown(n, repeats),
                "detail": n.counts(repeats[0]) if len(repeats) == 1 else f"mean of {len(repeats)} repeats",
                "help": n.help,
            }
            for n in NUMBERS
        ]
        if repeats and repeats[0].error is None
        else [],
        "badge": badge(check) if check else None,
        "error": repeats[0].error if repeats else None,
    }


def refused(round_: RoundRecord) -> RoundRecord:
    """A round with no more than its refused and unreached drafts: all that a panel shows of it while the decoder runs."""
    return dataclasses.replace(round_, trials=[t for t in round_.trials if t.fate in (Fate.REJECTED, Fate.DISCARDED)])


def badge(check: GreedyCheck) -> dict[str, str]:
    """Whether the output at temperature 0 is greedy's, and why it may not be."""
    if check.identical:
        return {"kind": "same", "text": "✓ identical to greedy", "help": "Every token equals that of greedy decoding."}
    text = f"≠ differs at token {check.differs_at + 1}"
    if check.near_tie:
        text += f" (near-tie: target gap {check.gap:.1e} nats, {check.dtype})"
    elif check.gap is not None:
        text += f" (target gap {check.gap:.3f} nats)"
    return {
        "kind": "tie" if check.near_tie else "differs",
        "text": text,
        "help": "A near-tie: the two likeliest tokens differ by less than the measured rounding of passes of different shape."
        if check.near_tie
        else "The decoder claims greedy's output at temperature 0, and this is another one.",
    }


def law_of(run_settings: dict[str, Any], decoder: str) -> str | None:
    """What this decoder claims with the settings of the run."""
    return catalog[decoder](**run_settings.get(decoder, {})).law


def finished_panel(results: Sequence[RunResult], prompt: str, law: str | None) -> dict[str, Any]:
    """The panel of a decoder that is done: the text of its first repeat, the figures of all."""
    first = results[0]
    return panel(
        first.decoder,
        prompt,
        status="failed" if first.error else "done",
        state="failed" if first.error else ENDS.get(first.finished, first.finished or ""),
        tokens=first.tokens,
        rounds=first.rounds,
        repeats=results,
        law=law,
    )


def run_panels(run: Run) -> list[str]:
    """The panels of a finished run, one JSON text each."""
    return [
        pack(finished_panel(results, run.prompt, law_of(run.settings, name)))
        for name, results in by_decoder(run.results).items()
        if name in catalog
    ]


def view(panels: Iterable[str], key: str) -> dict[str, Any]:
    """The value of the page's strip. Each panel travels as one text: Gradio walks nested data node by node, ten times a second."""
    return {"run": key, "panels": list(panels)}
