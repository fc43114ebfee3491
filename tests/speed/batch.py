"""Batches of the embedded pair: the tables of EMS-SD, where a round's time goes, every decoder.

    python -m tests.speed.batch [--pair FOLDER] [--sizes 1 2 4 8 16 24] [--prompts 24]
                                [--tokens 64] [--repeats 1] [--timings 1]
                                [--only TABLE ...] [--json FOLDER]

`lookup` and `speculative` are the tables of `tools.batch`; `parts` says where a round's time goes;
`decoders` sets every decoder's batch of 8 beside its batch of 1. Prints Markdown.
"""

import time
from contextlib import ExitStack, closing
from unittest import mock

import torch

import decoders
from decoders.engine.attention import interface
from decoders.engine.models.packed import PackedModel
from decoders.engine.weights import PassLinear
from tools.batch import METHODS, Bench, asked, options
from workbench.runs.figures import BatchFigures
from workbench.runs.record import Run
from workbench.show.quantities import MISSING
from workbench.show.tables import Table, markdown
from workbench.studies.prompts import PromptSet, built_in
from workbench.studies.study import BASELINE, SCHEMES, batches

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
# Qin et al. 2024, Optimized multi-token joint decoding (arXiv 2407.09722), appendix F
WARPED = {"temperature": 1.0, "top_k": 20, "top_p": 0.9}


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
    """One line: seconds in linear layers, in attention, in the rest of the models, and outside.

    First rounds are left out."""
    # a replay has no parts to time
    pair = decoders.ModelPair(pair.target, pair.draft, pair.tokenizer, passes="plain")
    watch, wall = Stopwatch(), 0.0
    spent = dict.fromkeys(watch.seconds, 0.0)
    options = {
        **warping,
        "ignore_eos": True,
        "max_new_tokens": tokens,
        "padding": SCHEMES[scheme].padding,
    }
    with ExitStack() as stack:
        stack.enter_context(
            mock.patch.object(PackedModel, "__call__", watch.wrap("models", PackedModel.__call__))
        )
        attend = watch.wrap("attention", interface.attend_parts)
        stack.enter_context(mock.patch.object(interface, "attend_parts", attend))
        # every linear layer of a packed model is one
        linear = watch.wrap("linear", PassLinear.forward)
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


def print_parts(bench: Bench, pair: decoders.ModelPair) -> None:
    """Where the time goes with each method of the paper's tables, at three sizes of the batch."""
    padded = ("vanilla", "unpadded_kv", "unpadded_inputs", "unpadded")
    rows = [
        bench.device.call(
            parts,
            pair,
            built_in(prompts).first(bench.args.prompts),
            method,
            size,
            scheme,
            bench.args.tokens,
            {"temperature": 0.0},
        )
        for method, prompts in (asked(name, bench.choice) for name in METHODS)
        for size in (1, 8, 16)
        for scheme in (("unpadded",) if size == 1 else padded)
    ]
    print("\n### where the seconds go, first rounds left out\n")
    print(markdown(Table(PARTS, rows)))


def print_decoders(bench: Bench, pair: decoders.ModelPair) -> None:
    """Every decoder at batch 8 and alone, and where its time goes."""
    every = tuple(m() for name, m in decoders.catalog.items() if name != "greedy")
    prompts, tokens = built_in("stories").first(8), min(32, bench.args.tokens)
    print("\n### every decoder at batch 8 and alone\n")
    run = bench.measure("decoders", every, prompts, (1, 8), WARPED, ("unpadded",), tokens)
    print(scaling(run))
    rows = [
        bench.device.call(parts, pair, prompts, method, size, "unpadded", tokens, WARPED)
        for method in every
        for size in (1, 8)
    ]
    print("\n### where their seconds go\n")
    print(markdown(Table(PARTS, rows)))


def main() -> None:
    args = options(__doc__, TABLES).parse_args()
    bench = Bench.of(args)
    pair, began = bench.device.pair(bench.choice), time.monotonic()
    bench.tables(name for name in METHODS if name in args.only)
    if "parts" in args.only:
        print_parts(bench, pair)
    if "decoders" in args.only:
        print_decoders(bench, pair)
    print(
        f"\n{time.monotonic() - began:.0f} s; torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads"
    )


if __name__ == "__main__":
    main()
