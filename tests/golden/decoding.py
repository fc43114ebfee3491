"""What 25 decoders give on the embedded pair: cases, how a call is recorded, how records differ.

A case is one call of `decoders.generate`; its record has a part for each prompt. Of each round, all
trials with their fates and places are in one digest, and p, q, u and the chances of acceptance in
four weighted sums, so that a difference is found at the round where it began.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
from transformers import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

import decoders

STORIES = Path(__file__).parents[2] / "assets" / "stories"
PROMPTS = (
    "Once upon a time",
    "Tom had a red ball. Tom had a blue ball. Tom had a",
    '"Can I go to the park?" asked Mia. Her mother smiled and',
)
# Each goes another way: argmax, the plain law, the nucleus of few tokens, both cuts, the
# temperature after them, and what reads the text itself, with the nucleus of all tokens.
SAMPLINGS: dict[str, dict[str, Any]] = {
    "T=0": {"temperature": 0.0},
    "T=1": {"temperature": 1.0},
    "T=0.7 top-p": {"temperature": 0.7, "top_p": 0.9},
    "T=1 top-k top-p": {"temperature": 1.0, "top_k": 20, "top_p": 0.9},
    "T=1.3 last, top-k min-p": {
        "temperature": 1.3, "top_k": 50, "min_p": 0.02, "temperature_last": True},
    "T=1 penalties top-n-sigma top-p": {
        "temperature": 1.0, "top_n_sigma": 2.0, "top_p": 0.95,
        "penalties": [RepetitionPenaltyLogitsProcessor(1.3), NoRepeatNGramLogitsProcessor(3)]},
}  # fmt: skip
SEEDS = (0, 1, 2)
NEW_TOKENS = 12
# Other parts that decoders can be made of; lengths that follow the clock and those of `confidence`
# and `gate` are left out.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "speculative, lookup": ("speculative", {"draft": "lookup"}),
    "speculative, head": ("speculative", {"draft": "head"}),
    "speculative, tree, multiround": ("speculative", {"draft": "tree", "rule": "multiround"}),
    "speculative, block": ("speculative", {"rule": "block"}),
    "speculative, lenient": ("speculative", {"lenience": 0.5}),
    "mtad, raw": ("mtad", {"ratio": "raw"}),
    "mtad, search": ("mtad", {"draft": "search"}),
    "mtad, lookup": ("mtad", {"draft": "lookup"}),
    "mtjd, sampled": ("mtjd", {"form": "sample"}),
    "dsbd, fixed width": ("dsbd", {"beams": 3}),
    "dsbd, one": ("dsbd", {"keep_one": True}),
    "ngram, unigram": ("ngram", {"order": "unigram"}),
    "suffix, tree": ("suffix", {"shape": "tree"}),
    "lookup, references": ("lookup", {"references": [PROMPTS[1], "there was a little girl"]}),
    "cascade, opt": ("cascade", {"defer": "opt"}),
    "match, lookup": ("match", {"draft": "lookup"}),
    "best_first, head": ("best_first", {"by": "head"}),
}
LETTERS = {
    "accepted": "a", "rejected": "r", "discarded": "d", "corrected": "c", "bonus": "b",
    "sampled": "s", "searched": "e",
}  # fmt: skip
COUNTS = ("new_tokens", "target_calls", "draft_calls", "drafted", "tested", "accepted")
SUMS = ("p", "q", "u", "accept_probability")
TOLERANCE = {"float64": 1e-8, "float32": 5e-4}


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes:
        name: says all of it, and is its key in the file
        dtype: "float64" (plain passes) or "float32" (the passes that users have)
        decoder: name of the catalog
        settings: all settings of the decoder
        sampling: a name of SAMPLINGS
        seed: the seed; alone, also the number of the prompt
        batch: whether all prompts are decoded as one list
    """

    name: str
    dtype: str
    decoder: str
    settings: Mapping[str, Any]
    sampling: str
    seed: int
    batch: bool


def cases(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[Case]:
    """All cases, for the settings of each decoder and variant by name."""
    own = [name for name in settings if name not in VARIANTS]
    few = ["T=0", "T=1"]
    for dtype, names, samplings, seeds in (
        ("float64", own, [*SAMPLINGS], SEEDS),
        ("float64", [*VARIANTS], [*few, "T=1 top-k top-p"], (1,)),
        ("float32", own, few, SEEDS),
        ("float32", [*VARIANTS], few, (1,)),
    ):
        for name, sampling, seed, batch in product(names, samplings, seeds, (False, True)):
            decoder = VARIANTS[name][0] if name in VARIANTS else name
            title = f"{dtype} | {name} | {sampling} | seed {seed} | {'batch' if batch else 'alone'}"
            yield Case(title, dtype, decoder, settings[name], sampling, seed, batch)


@cache
def pair(dtype: str) -> decoders.ModelPair:
    """The embedded pair by its folders, on the CPU."""
    return decoders.load_pair(
        STORIES / "target", STORIES / "draft", head=STORIES / "head", device="cpu",
        dtype=getattr(torch, dtype), passes="plain" if dtype == "float64" else "program",
    )  # fmt: skip


def record(case: Case) -> Any:
    """What the call gives, as JSON has it; "refused" if the library refuses it."""
    method = decoders.catalog[case.decoder](**case.settings)
    prompt = list(PROMPTS) if case.batch else PROMPTS[case.seed]
    try:
        found = decoders.generate(
            pair(case.dtype), prompt, method, seed=case.seed, max_new_tokens=NEW_TOKENS,
            **SAMPLINGS[case.sampling],
        )  # fmt: skip
    except decoders.InputError:
        return "refused"
    return [_request(each) for each in (found if case.batch else [found])]


def _request(result: decoders.Result) -> dict[str, Any]:
    if result.error is not None:
        raise result.error
    return {
        "tokens": result.tokens,
        "fates": "".join(LETTERS.get(trial.fate.value, "?") for trial in result.trials),
        "finished": result.finished,
        "text": digest(result.text),
        "counts": [getattr(result.metrics, name) for name in COUNTS],
        "perplexity": rounded(result.metrics.perplexity),
        "rounds": [_round(each) for each in result.rounds],
    }


def _round(entry: decoders.Round) -> list[Any]:
    first: dict[int, int] = {}
    trials = []
    for place, trial in enumerate(entry.trials):
        parent = first.get(trial.parent, -1)
        first.setdefault(trial.node, place)
        known = "".join("01"[getattr(trial, name) is not None] for name in SUMS)
        trials.append([trial.token, LETTERS.get(trial.fate.value, "?"), parent, known])
    exact = [
        entry.keep, entry.provisional, entry.tokens, entry.target_calls, entry.draft_calls, trials,
    ]  # fmt: skip
    return [digest(exact), *(_sum(entry.trials, name) for name in SUMS)]


def _sum(trials: Any, name: str) -> float:
    """A sum that notices exchanged trials, too."""
    values = ((1 + i % 5) * (getattr(trial, name) or 0.0) for i, trial in enumerate(trials))
    return rounded(sum(values))


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:8]


def rounded(value: float | None) -> float | None:
    return value if value is None else float(f"{value:.11g}")


def difference(case: Case, before: Any, now: Any) -> str | None:
    """Where the records of a case part, in one sentence; None if they are the same."""
    if "refused" in (before, now):
        return None if before == now else f"refused before: {before == now == 'refused'}"
    for number, (old, new) in enumerate(zip(before, now, strict=True)):
        if found := _difference(old, new, TOLERANCE[case.dtype]):
            return f"prompt {number}: {found}"
    return None


def _difference(old: Any, new: Any, tolerance: float) -> str | None:
    for place, (a, b) in enumerate(zip(old["rounds"], new["rounds"], strict=False)):
        if a[0] != b[0]:
            return f"round {place} has other trials, fates or calls; {_texts(old, new)}"
        for name, x, y in zip(SUMS, a[1:], b[1:], strict=True):
            if abs(x - y) > tolerance * max(1.0, abs(x)):
                return f"round {place}: the sum of {name} was {x:.10g} and is {y:.10g}"
    if len(old["rounds"]) != len(new["rounds"]):
        return f"{len(old['rounds'])} rounds are {len(new['rounds'])} now"
    for name, x, y in zip(COUNTS, old["counts"], new["counts"], strict=True):
        if x != y:
            return f"{name} was {x} and is {y}"
    for name in ("tokens", "fates", "finished", "text"):
        if old[name] != new[name]:
            return f"{name} were {old[name]!r} and are {new[name]!r}"
    x, y = old["perplexity"], new["perplexity"]
    if (x is None) != (y is None) or (x is not None and abs(x - y) > tolerance * 10 * x):
        return f"perplexity was {x} and is {y}"
    return None


def _texts(old: Any, new: Any) -> str:
    pairs = zip(
        zip(old["tokens"], old["fates"], strict=False),
        zip(new["tokens"], new["fates"], strict=False),
        strict=False,
    )
    for place, (a, b) in enumerate(pairs):
        if a != b:
            return f"token {place} was {a[0]} ({a[1]}) and is {b[0]} ({b[1]})"
    return "the text is the same"
