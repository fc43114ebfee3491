"""The settings of each decoder that are quickest on a pair, for the file that is kept with it.

    python -m tools.tune [--pair FOLDER] [--only NAME ...] [--tokens 64] [--prompts 4]
                         [--rounds 3] [--finalists 3] [--file FILE]

One thread, on openings that neither `tests.speed.claims` nor the plan `stories` measures. Of every
decoder, each setting of its grid is timed once; the quickest are timed again, interleaved in
rounds: at temperature 0 over greedy decoding, and at temperature 1 (top-k 20, top-p 0.9) over
sampling. The best has the largest geometric mean of both medians. MTAD is measured at temperature 1
alone; so is DSBD, over beam sampling of four and of two beams, and only where its texts are at
least as likely as theirs. Decoders that copy continue prompts that repeat themselves.

Prints Markdown. The file is written after each decoder, so that `--only` finishes what was stopped.
About ten minutes on an idle machine.
"""

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import decoders
from decoders import Method, catalog
from tests.speed.measure import WARPINGS, Over, Seconds, measure, perplexity, prompts, ratio
from workbench.models.presets import PairChoice, file, pair_settings
from workbench.studies.settings import changed

COLD, WARM = WARPINGS
BASES = {COLD: "greedy", WARM: "multinomial"}
SEEN = 48  # openings that others measure
TREES = ((2, 1), (2, 1, 1), (3, 1, 1), (2, 1, 1, 1), (2, 2, 1), (3, 2, 1), (3, 2, 1, 1))
Grids = Mapping[str, Mapping[str, tuple[Any, ...]]]
GRIDS: Grids = {
    "speculative": {"draft_length": (2, 3, 4, 5, 6), "confidence": (0.0, 0.4)},
    "block": {"draft_length": (2, 3, 4, 5, 6)},
    "mtad": {"draft_length": (4, 5, 6, 8), "beams": (2, 4, 8)},
    "spectr": {"drafts": (2, 3), "draft_length": (2, 3, 4, 5)},
    "specinfer": {"expansion": TREES},
    "mcss": {"expansion": TREES},
    "typical": {"draft_length": (3, 4, 5, 6)},
    "lookup": {"match": (2, 3), "copy": (4, 7, 10)},
    "ngram": {"draft_length": (2, 3, 4, 6)},
    "best_first": {"nodes": (4, 8, 16), "depth": (2, 3, 4, 6)},
    "suffix": {"copy": (8, 16, 24), "factor": (1.0, 2.0, 3.0)},
    "recycling": {"nodes": (4, 6, 8, 16), "depth": (3, 4, 6)},
    "dsbd": {
        "draft_length": (2, 3, 4),
        "draft_beams": (2, 3, 4, 6),
        "width_threshold": (0.5, 0.9),
        "min_beams": (1, 2, 4),
    },
}
WIDTHS = (4, 2)  # of the beam sampling beside DSBD; the first is the page's
COPYING = ("lookup", "ngram", "suffix", "recycling")
HEADS = "| settings | T=0 over greedy | T=1 over its base | together | perplexity, T=1 |"


@dataclass(frozen=True)
class Bench:
    """Times decoders on one pair.

    Attributes:
        pair: the pair
        texts: "openings" and "refrains", the prompts of each kind
        tokens: tokens of each text
        rounds: interleaved rounds of the finalists
        finalists: how many settings of a decoder are timed again
        run: makes a decoder's run over some texts
        clock: times such runs in turn
        likely: the perplexity of what a run wrote
    """

    pair: decoders.ModelPair
    texts: Mapping[str, Sequence[str]]
    tokens: int
    rounds: int
    finalists: int
    run: Callable[..., Any] = Over
    clock: Callable[..., Seconds] = measure
    likely: Callable[..., float] = perplexity

    def timed(
        self, methods: Mapping[str, Method], warping: str, rounds: int
    ) -> tuple[Seconds, dict[str, float]]:
        """Seconds of each round, and the perplexity, of each decoder at one temperature."""
        copy = any(method.name in COPYING for method in methods.values())
        texts = self.texts["refrains" if copy else "openings"]
        options = {**WARPINGS[warping], "max_new_tokens": self.tokens}
        runs = {name: self.run(self.pair, each, texts, options) for name, each in methods.items()}
        took = self.clock(runs, rounds)
        return took, {name: self.likely(run.results) for name, run in runs.items()}

    def best(self, methods: Sequence[Method], width: int | None = None) -> Method | None:
        """The best of these settings of one decoder; prints the finalists.

        Args:
            methods: the settings
            width: the beams of the beam sampling beside them, or None

        Returns:
            the best; None if no texts are as likely as those of beam sampling
        """
        named = {spelled(method): method for method in methods}
        bases = {WARM: catalog["beam_sampling"](beams=width)} if width else {
            warping: catalog[name]() for warping, name in BASES.items()
        }  # fmt: skip
        if methods[0].name == "mtad":
            del bases[COLD]
        first = {at: self.timed({"base": base, **named}, at, 1) for at, base in bases.items()}
        likely = first[WARM][1]
        good = [name for name in named if not width or likely[name] <= likely["base"]]
        good.sort(key=lambda name: math.prod(took[name][0] for took, _ in first.values()))
        chosen = {name: named[name] for name in good[: self.finalists]}
        found = {
            at: self.timed({"base": base, **chosen}, at, self.rounds) for at, base in bases.items()
        }
        gains = {name: together([took for took, _ in found.values()], name) for name in chosen}
        base = f"beam sampling of {width}" if width else bases[WARM].name
        print(f"\n### {methods[0].name} beside {base}, perplexity {likely['base']:.2f}\n\n{HEADS}")
        print("|---|--:|--:|--:|--:|")
        for name in sorted(gains, key=lambda name: -gains[name]):
            ratios = [at in found and ratio(found[at][0], name, "base") for at in WARPINGS]
            cells = [*(each or "" for each in ratios), f"{gains[name]:.2f}"]
            print(f"| {name} | {' | '.join(cells)} | {found[WARM][1][name]:.2f} |", flush=True)
        if not gains:
            print("| none was as likely | | | | |", flush=True)
        return chosen[max(gains, key=lambda name: gains[name])] if gains else None


def spelled(method: Method) -> str:
    """The settings that its grid varies, in words."""
    return ", ".join(f"{name} {getattr(method, name)}" for name in GRIDS[method.name])


def together(took: Sequence[Seconds], name: str) -> float:
    """The geometric mean, over the temperatures, of the median ratio of a base's seconds to its."""
    return statistics.geometric_mean(
        statistics.median(b / a for a, b in zip(each[name], each["base"], strict=True))
        for each in took
    )


def grid(name: str, grids: Grids = GRIDS) -> list[Method]:
    """A decoder with every combination of the settings of its grid."""
    every = (
        dict(zip(grids[name], values, strict=True))
        for values in itertools.product(*grids[name].values())
    )
    return [
        catalog[name](**own)
        for own in every
        if own.get("min_beams", 1) <= own.get("draft_beams", 1)
    ]


def tuned(bench: Bench, name: str, grids: Grids) -> list[dict[str, Any]]:
    """The best settings of a decoder, without the library's defaults; DSBD's for each width."""
    if name != "dsbd":
        best = [bench.best(grid(name, grids))]
    else:
        best = [
            bench.best([m for m in grid(name, grids) if width <= m.draft_beams <= width + 2], width)
            for width in WIDTHS
        ]
    return [changed(method) if method else {} for method in best]


def main(
    arguments: Sequence[str] | None = None,
    load: Callable[[str | None], decoders.ModelPair] = decoders.load_pair,
    grids: Grids = GRIDS,
) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pair", help="a folder with target/ and draft/; default: the embedded one"
    )
    parser.add_argument("--only", nargs="+", choices=grids, default=grids, metavar="NAME")
    for option, value in (("tokens", 64), ("prompts", 4), ("rounds", 3), ("finalists", 3)):
        parser.add_argument(f"--{option}", type=int, default=value)
    parser.add_argument("--file", type=Path, help="default: settings.json of the pair")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    choice, every = PairChoice(args.pair), prompts()
    texts = {
        "openings": every["openings"][SEEN : SEEN + args.prompts],
        "refrains": every["refrains"][-args.prompts :],
    }
    bench = Bench(load(args.pair), texts, args.tokens, args.rounds, args.finalists)
    path, settings = args.file or file(choice), pair_settings(choice)
    for name in args.only:
        own = tuned(bench, name, grids)
        settings = {**settings, name: own} if any(own) else {
            other: sets for other, sets in settings.items() if other != name
        }  # fmt: skip
        plain = {n: sets[0] if len(sets) == 1 else sets for n, sets in settings.items()}
        lines = (f"  {json.dumps(n)}: {json.dumps(sets)}" for n, sets in plain.items())
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
