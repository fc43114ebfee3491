"""What the scripts of this folder share: cases in turn, their ratios, texts and options."""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import decoders
from decoders.trace import perplexity as of_tokens

ASSETS = Path(__file__).parents[2] / "assets"
WARPINGS = {
    "T=0": {"temperature": 0.0},
    "T=1, top-k 20, top-p 0.9": {"temperature": 1.0, "top_k": 20, "top_p": 0.9},
}
Seconds = dict[str, list[float]]


def measure(
    cases: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Seconds:
    """Seconds of each case in each round after one to warm up; every other round is reversed."""
    took: Seconds = {name: [] for name in cases}
    for i in range(rounds + 1):
        for name in list(cases)[:: -1 if i % 2 else 1]:
            began = clock()
            cases[name]()
            if i:
                took[name].append(clock() - began)
    return took


def spread(values: Sequence[float], digits: int = 2) -> str:
    median, least, most = (f"{f(values):.{digits}f}" for f in (statistics.median, min, max))
    return f"{median} ({least} to {most})"


def ratio(took: Seconds, name: str, other: str, work: float = 1.0) -> str:
    """The speed of `name` over that of `other`, if it does `work` times as much."""
    return spread([work * b / a for a, b in zip(took[name], took[other], strict=True)])


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print Markdown, line by line as the rows come."""
    print("\n|", " | ".join(heads), "|\n|---|" + "--:|" * (len(heads) - 1))
    for row in rows:
        print("|", " | ".join(str(cell) for cell in row), "|", flush=True)


def prompts() -> dict[str, list[str]]:
    lines = (ASSETS / "batch" / "refrains.jsonl").read_text().splitlines()
    openings = json.loads((ASSETS / "stories" / "prompts.json").read_text())["openings"]
    return {"refrains": [json.loads(line)["prompt"] for line in lines], "openings": openings}


def perplexity(results: Sequence[decoders.Result]) -> float:
    """Of all their tokens under the target, unwarped."""
    return of_tokens(trial.log_p for result in results for trial in result.trials)


class Over:
    """Decodes each text; `results` has what the last run returned."""

    def __init__(
        self, pair: decoders.ModelPair, method: decoders.Method, texts: Sequence[str],
        options: Mapping[str, Any],
    ):  # fmt: skip
        self.run = lambda: [
            decoders.generate(pair, text, method, ignore_eos=True, **options) for text in texts
        ]
        self.results: list[decoders.Result] = []

    def __call__(self) -> None:
        self.results = self.run()

    @property
    def rate(self) -> float:
        """Tokens a pass of the target."""
        calls = sum(r.metrics.target_calls for r in self.results)
        return sum(r.metrics.new_tokens for r in self.results) / calls


def by_place(results: Iterable[decoders.Result], places: int) -> list[list[int]]:
    """Draft tokens accepted and tested at each place, of those whose places before were."""
    counts = [[0, 0] for _ in range(places)]
    tested = decoders.Fate.ACCEPTED, decoders.Fate.REJECTED
    for entry in (entry for result in results for entry in result.rounds):
        fates = [trial.fate for trial in entry.trials if trial.fate in tested]
        for place, fate in enumerate(fates[:places]):
            counts[place][1] += 1
            counts[place][0] += fate == decoders.Fate.ACCEPTED
    return counts


def shares(counts: Iterable[Sequence[int]]) -> str:
    return ", ".join(f"{part / of:.2f}" if of else "–" for part, of in counts)


def options(
    doc: str | None, tiny: Mapping[str, Any], sections: Iterable[str] = (), **defaults: Any
) -> argparse.Namespace:
    """An option for each default, `--threads`, and `--tiny`, which takes the defaults of `tiny`.

    Prints them with the load average, and holds torch to the threads."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=raw)
    parser.add_argument("--tiny", action="store_true", help="a minute at most, for no figures")
    if every := list(sections):
        parser.add_argument("--only", nargs="+", choices=every, default=every)
    for name, value in {"threads": 1, **defaults}.items():
        kind = type(value[0]) if isinstance(value, list) else type(value)
        many = {"nargs": "+"} if isinstance(value, list) else {}
        kind = str if value is None else kind
        parser.add_argument(f"--{name}", type=kind, default=value, **many)
    if parser.parse_known_args()[0].tiny:
        parser.set_defaults(**tiny)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"{vars(args)}; load average {os.getloadavg()[0]:.1f} before", flush=True)
    return args
