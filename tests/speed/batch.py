"""EMS-SD's tables 2-4 on the embedded pair: greedy, vanilla, unpadded cache, unpadded inputs, both, and dynamic batches.

    python -m tests.speed.batch [--pair FOLDER] [--sizes 1 2 4 8 16 24] [--prompts 24] [--tokens 64] [--repeats 1] [--timings 1]
                                [--only TABLE ...] [--json FOLDER] [--measured FILE]

`lookup` drafts by copying (match 2, copy 7) on prompts that repeat themselves, `speculative` by the draft model (gamma 4) on story
openings, both at temperature 0 with texts of one length; `parts` says where a round's time goes; `decoders` sets every decoder's
batch of 8 beside its batch of 1. What is compared runs close together, batch size by batch size. Prints Markdown; `--measured
assets/batch/measured.json` writes what the Batch tab shows.
"""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from unittest import mock

import torch

import decoders
from decoders.engine import interface
from decoders.engine.linear import PassLinear
from decoders.engine.model import PackedModel
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.runs.estimates import BatchFigures, speed
from workbench.runs.events import Event, Finished
from workbench.runs.record import Run
from workbench.runs.shipped import Measured
from workbench.show.spread import MISSING
from workbench.show.tables import Table, findings, markdown, paper_table
from workbench.studies.batch import SIZES, Batch
from workbench.studies.prompts import PromptSet, built_in
from workbench.studies.schemes import BASELINE, SCHEMES, batches
from workbench.studies.settings import Settings

METHODS = {
    "lookup": (decoders.catalog["lookup"](match=2, copy=7), "refrains"),
    "speculative": (decoders.catalog["speculative"](draft_length=4), "stories"),
}
TABLES = (*METHODS, "parts", "decoders")
PARTS = [
    "decoder",
    "batch",
    "scheme",
    "seconds",
    "linear layers",
    "attention",
    "rest of the models",
    "outside the models",
]
WARPED = {"temperature": 1.0, "top_k": 20, "top_p": 0.9}  # mtad.txt appendix F


def followed(events: Iterable[Event]) -> Run:
    for event in events:
        if isinstance(event, Finished):
            r = event.result
            print(f"{r.decoder} {r.batch_size} {r.scheme}: {speed(r) or 0:.0f} tokens/s", file=sys.stderr)
    return event.run


def tables(run: Run, decoder: str) -> str:
    """Both tables, what was found beside them, and the ratio that the paper's claim is about."""
    figures = BatchFigures(run)
    texts = [
        "Tokens/s, the reading of prompts left out (times greedy at the same batch size):",
        markdown(paper_table(figures, decoder, decoding=True)),
        "All of it, prompts included:", markdown(paper_table(figures, decoder, decoding=False)), *findings(run),
    ]  # fmt: skip
    both, vanilla = (
        {n: figures.speed(decoder, n, scheme, True) for n in figures.sizes} for scheme in ("unpadded", "vanilla")
    )
    ratios = [f"{both[n] / vanilla[n]:.2f} at batch {n}" for n in figures.sizes if n > 1 and both[n] and vanilla[n]]
    return "\n\n".join(
        [*texts, f"Both unpadded over vanilla, prompts left out: {', '.join(ratios) or 'not measured'}."]
    )


class Stopwatch:
    """Seconds spent in the functions that it wraps, calls inside calls counted in both."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("models", "linear", "attention"), 0.0)

    def wrap(self, name: str, function):
        def timed(*args, **options):
            began = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                self.seconds[name] += time.perf_counter() - began

        return timed


def parts(
    pair: decoders.ModelPair,
    prompts: PromptSet,
    method: decoders.Method,
    size: int,
    scheme: str,
    tokens: int,
    warping: dict,
) -> list[str]:
    """One line: seconds in linear layers, in attention, in the rest of the models, and outside of them; first rounds left out."""
    pair = decoders.ModelPair(pair.target, pair.draft, pair.tokenizer, passes="plain")  # a replay has no parts to time
    watch, wall = Stopwatch(), 0.0
    spent = dict.fromkeys(watch.seconds, 0.0)
    options = {**warping, "ignore_eos": True, "max_new_tokens": tokens, "padding": SCHEMES[scheme].padding}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(PackedModel, "__call__", watch.wrap("models", PackedModel.__call__)))
        attend = watch.wrap("attention", interface.attend_parts)
        stack.enter_context(mock.patch.object(interface, "attend_parts", attend))
        linear = watch.wrap("linear", PassLinear.forward)  # every linear layer of a packed model is one
        stack.enter_context(mock.patch.object(PassLinear, "forward", linear))
        for batch in batches([p.text for p in prompts.prompts], size):
            began = None
            with closing(decoders.stream(pair, batch, method, **options)) as stream:
                for _ in stream:
                    if began is None:
                        began, before = time.perf_counter(), dict(watch.seconds)
            wall += time.perf_counter() - began
            spent = {name: spent[name] + watch.seconds[name] - before[name] for name in spent}
    inside = {
        "linear": spent["linear"],
        "attention": spent["attention"],
        "rest": spent["models"] - spent["linear"] - spent["attention"],
        "outside": wall - spent["models"],
    }
    shares = [f"{seconds:.2f} ({seconds / wall:.0%})" for seconds in inside.values()]
    return [method.name, str(size), SCHEMES[scheme].label, f"{wall:.2f}", *shares]


def scaling(run: Run) -> str:
    """Each decoder's tokens/s at the largest and the smallest batch size, prompts left out."""
    figures = BatchFigures(run)
    least, most = figures.sizes[0], figures.sizes[-1]
    rows = []
    for name in (BASELINE, *figures.decoders):
        one, many = (figures.speed(name, size, "unpadded", decoding=True) for size in (least, most))
        cells = [one and f"{one:.0f}", many and f"{many:.0f}", one and many and f"{many / one:.2f}"]
        rows.append([name, *(cell or MISSING for cell in cells)])
    return markdown(Table(["decoder", f"batch {least}", f"batch {most}", "times"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=Path, help="a folder with target/ and draft/ (default: the embedded pair)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--timings", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=TABLES, default=TABLES, metavar="TABLE")
    parser.add_argument("--json", type=Path, help="a folder for the runs as JSON")
    parser.add_argument("--measured", type=Path, help="a file for the tables of lookup and speculative")
    args = parser.parse_args()
    load = os.getloadavg()
    device, choice = Device(PairKeeper()), PairChoice(str(args.pair) if args.pair else None)
    pair, began = device.pair(choice), time.monotonic()

    def measured(
        name: str, methods, prompts: PromptSet, sizes, shared, schemes=tuple(SCHEMES), tokens=args.tokens
    ) -> Run:
        settings = Settings(methods, max_new_tokens=tokens, repeats=args.repeats, timings=args.timings, **shared)
        run = followed(device.run(Batch(prompts, settings, tuple(sizes), schemes), choice))
        if args.json:
            (args.json / f"{name}.json").write_text(run.dumps())
        return run

    runs = []
    for name, (method, prompts) in METHODS.items():
        if name in args.only:
            print(f"\n### {name} on {prompts}\n")
            run = measured(name, (method,), built_in(prompts).first(args.prompts), args.sizes, {"temperature": 0.0})
            print(tables(run, name))
            runs.append(run)
    if args.measured and runs:
        command = shlex.join(["python", "-m", "tests.speed.batch", *sys.argv[1:]])
        args.measured.write_text(Measured(command, load, tuple(runs)).to_json(), encoding="utf-8")
    if "parts" in args.only:
        rows = [
            device.call(
                parts,
                pair,
                built_in(prompts).first(args.prompts),
                method,
                size,
                scheme,
                args.tokens,
                {"temperature": 0.0},
            )
            for method, prompts in METHODS.values()
            for size in (1, 8, 16)
            for scheme in (("unpadded",) if size == 1 else ("vanilla", "unpadded_kv", "unpadded_inputs", "unpadded"))
        ]
        print("\n### where the seconds go, first rounds left out\n")
        print(markdown(Table(PARTS, rows)))
    if "decoders" in args.only:
        every = tuple(m() for name, m in decoders.catalog.items() if name != "greedy")
        prompts = built_in("stories").first(8)
        print("\n### every decoder at batch 8 and alone\n")
        tokens = min(32, args.tokens)
        print(scaling(measured("decoders", every, prompts, (1, 8), WARPED, ("unpadded",), tokens=tokens)))
        rows = [
            device.call(parts, pair, prompts, method, size, "unpadded", tokens, WARPED)
            for method in every
            for size in (1, 8)
        ]
        print("\n### where their seconds go\n")
        print(markdown(Table(PARTS, rows)))
    print(f"\n{time.monotonic() - began:.0f} s; torch {torch.__version__}, {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
