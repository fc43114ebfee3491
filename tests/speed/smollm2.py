"""SmolLM2's head on its held-out questions: speed over plain decoding by kind, acceptance by place.

    python -m tests.speed.smollm2 [--each 10] [--threads 1] [--tokens 64] [--head FOLDER]
                                  [--seconds 100] [--cases NAME ...] [--file smollm2-speed.jsonl]

Greedy decoding and speculative decoding of 2, 3 and 4 tokens, sampling at temperature 0.7 and top-p
0.9 likewise, MTAD beside sampling at temperature 1, and at temperature 0 look-up, suffix decoding
and suffix, else head, all interleaved in one process, ends ignored. Results are appended to a
file, and the same command goes on where it was stopped. Prints Markdown: a ratio is that of the
seconds of a kind's questions. All of it takes twenty minutes on one thread.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import decoders
from tests.speed.measure import by_place, options, shares, table

QUESTIONS = Path(__file__).parents[2] / "training" / "smollm2" / "questions.jsonl"
COPYING = "summary", "edit"
GREEDY = {"temperature": 0.0}
USED = {"temperature": 0.7, "top_p": 0.9}
WHOLE = {"temperature": 1.0}
LENGTHS = 2, 3, 4
PLACES = 4
EITHER = "suffix, else head"
TINY = f"{tempfile.gettempdir()}/smollm2-tiny-{os.getpid()}.jsonl"


def cases() -> dict[str, tuple[decoders.Method, dict, str]]:
    """By name the decoder, its sampling, and the name of the one that it is measured against."""
    new = decoders.catalog
    every = {"greedy": (new["greedy"](), GREEDY, "greedy")}
    for name, sampling, base in (
        ("speculative", GREEDY, "greedy"), ("speculative 0.7", USED, "sampling 0.7"),
    ):  # fmt: skip
        for n in LENGTHS:
            every[f"{name}, {n}"] = new["speculative"](draft_length=n), sampling, base
    either = new["speculative"](draft=f"{EITHER}(draft_length=3)")
    return every | {
        "look-up": (new["lookup"](), GREEDY, "greedy"),
        "suffix": (new["suffix"](), GREEDY, "greedy"),
        EITHER: (either, GREEDY, "greedy"),
        "sampling 0.7": (new["multinomial"](), USED, "sampling 0.7"),
        f"{EITHER} 0.7": (either, USED, "sampling 0.7"),
        "sampling 1": (new["multinomial"](), WHOLE, "sampling 1"),
        "mtad": (new["mtad"](), WHOLE, "sampling 1"),
    }


def append(file: Path, args: argparse.Namespace) -> None:
    """Append a line for each result that the file lacks: questions of all kinds in turn."""
    pair = decoders.load_pair("smollm2", args.head)
    of_kind = defaultdict(list)
    for row in map(json.loads, QUESTIONS.read_text().splitlines()):
        of_kind[row["kind"]].append(row)
    chosen = [rows[i] for i in range(args.each) for rows in of_kind.values() if i < len(rows)]
    done = {(line["question"], line["case"]) for line in lines(file)}
    began = time.perf_counter()
    for i, row in enumerate(chosen):
        mine = [
            (name, method, sampling)
            for name, (method, sampling, _) in cases().items()
            if name in args.cases and (sampling is GREEDY or row["kind"] not in COPYING)
        ]
        if all((row["question"], name) in done for name, *_ in mine):
            continue
        if time.perf_counter() - began > args.seconds:
            print(f"The time is up at question {i + 1} of {len(chosen)}; the same command goes on.")
            return
        prompt = [{"role": "user", "content": row["question"]}]
        results = {}
        warm = time.perf_counter() - began > 5
        for name, method, sampling in [*([] if warm else mine[:2]), *mine[:: -1 if i % 2 else 1]]:
            start = time.perf_counter()
            result = decoders.generate(
                pair, prompt, method, max_new_tokens=args.tokens, ignore_eos=True, seed=i,
                **sampling,
            )  # fmt: skip
            took, m = time.perf_counter() - start, result.metrics
            results[name] = {
                "question": row["question"], "kind": row["kind"], "case": name, "seconds": took,
                "tokens": m.new_tokens, "passes": m.target_calls, "perplexity": m.perplexity,
                "load": os.getloadavg()[0],
                "places": by_place([result], PLACES) if name.endswith(", 4") else [],
            }  # fmt: skip
        with file.open("a") as out:
            out.writelines(json.dumps(line) + "\n" for line in results.values())


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def report(file: Path) -> None:
    """Print what the file holds, as Markdown."""
    every = lines(file)
    kinds = list(dict.fromkeys(line["kind"] for line in every))
    seconds: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    of_case = defaultdict(list)
    for line in every:
        seconds[line["case"]][line["kind"]][line["question"]] = line["seconds"]
        of_case[line["case"]].append(line)
    loads = statistics.median(line["load"] for line in every)
    print(f"{len({line['question'] for line in every})} questions, median load {loads:.1f}")

    def rows() -> Iterator[list[str]]:
        for name, (_, _, base) in cases().items():
            ratios = {}
            for kind, each in seconds[name].items():
                if both := each.keys() & seconds[base][kind].keys():
                    usual = sum(seconds[base][kind][q] for q in both)
                    ratios[kind] = usual / sum(each[q] for q in both)
            if ratios:
                plain = [ratio for kind, ratio in ratios.items() if kind not in COPYING]
                passes = sum(line["passes"] for line in of_case[name])
                yield [
                    name,
                    *(f"{ratios[kind]:.2f}" if kind in ratios else "" for kind in kinds),
                    f"{statistics.median(plain):.2f}" if plain else "",
                    f"{sum(line['tokens'] for line in of_case[name]) / passes:.2f}",
                ]

    table(("over plain decoding", *kinds, "median of kinds", "tokens a pass"), rows())
    for name in ("speculative, 4", "speculative 0.7, 4"):
        each = zip(*(line["places"] for line in of_case[name]), strict=True)
        kept = shares([sum(x) for x in zip(*place, strict=True)] for place in each)
        print(f"\nkept by place, of those whose places before were kept, {name}: {kept}")
    if speeds := [line["tokens"] / line["seconds"] for line in of_case["greedy"]]:
        print(f"\ngreedy: {statistics.median(speeds):.0f} tokens/s")


if __name__ == "__main__":
    args = options(
        __doc__,
        {"each": 1, "tokens": 4, "seconds": 1, "cases": ["greedy", "speculative, 4"], "file": TINY},
        each=10, tokens=64, seconds=float("inf"), cases=list(cases()), head=None,
        file="smollm2-speed.jsonl",
    )  # fmt: skip
    append(Path(args.file), args)
    report(Path(args.file))
