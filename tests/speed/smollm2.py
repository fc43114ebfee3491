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
import time
from collections import defaultdict
from pathlib import Path

import torch

import decoders

QUESTIONS = Path(__file__).parents[2] / "training" / "smollm2" / "questions.jsonl"
COPYING = "summary", "edit"
GREEDY, USED, WHOLE = (
    {"temperature": 0.0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.0},
)
LENGTHS = 2, 3, 4
PLACES = 4
TESTED = decoders.Fate.ACCEPTED, decoders.Fate.REJECTED
EITHER = "suffix, else head"


def cases() -> dict[str, tuple[decoders.Method, dict, str]]:
    """By name the decoder, its sampling, and the name of the one that it is measured against."""
    new = decoders.catalog
    found = {"greedy": (new["greedy"](), GREEDY, "greedy")}
    found |= {
        f"speculative, {n}": (new["speculative"](draft_length=n), GREEDY, "greedy") for n in LENGTHS
    }
    found["look-up"] = new["lookup"](), GREEDY, "greedy"
    found["suffix"] = new["suffix"](), GREEDY, "greedy"
    found[EITHER] = new["speculative"](draft=f"{EITHER}(draft_length=3)"), GREEDY, "greedy"
    found["sampling 0.7"] = new["multinomial"](), USED, "sampling 0.7"
    found |= {
        f"speculative 0.7, {n}": (new["speculative"](draft_length=n), USED, "sampling 0.7")
        for n in LENGTHS
    }
    found[f"{EITHER} 0.7"] = (
        new["speculative"](draft=f"{EITHER}(draft_length=3)"), USED, "sampling 0.7",
    )  # fmt: skip
    found["sampling 1"] = new["multinomial"](), WHOLE, "sampling 1"
    found["mtad"] = new["mtad"](), WHOLE, "sampling 1"
    return found


def measure(file: Path, args: argparse.Namespace) -> None:
    """Append a line for each result that the file lacks: questions of all kinds in turn."""
    pair = decoders.load_pair("smollm2", args.head)
    rows = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    of_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in kinds}
    chosen = [
        of_kind[kind][i] for i in range(args.each) for kind in kinds if i < len(of_kind[kind])
    ]
    done = {(line["question"], line["case"]) for line in lines(file)}
    began = time.perf_counter()
    for i, row in enumerate(chosen):
        mine = [
            (name, method, sampling)
            for name, (method, sampling, _) in cases().items()
            if (args.cases is None or name in args.cases)
            and (sampling is GREEDY or row["kind"] not in COPYING)
        ]
        if all((row["question"], name) in done for name, *_ in mine):
            continue
        if time.perf_counter() - began > args.seconds:
            print(f"The time is up at question {i + 1} of {len(chosen)}; the same command goes on.")
            return
        prompt = [{"role": "user", "content": row["question"]}]
        found = []
        warmed = time.perf_counter() - began > 5
        for name, method, sampling in [*([] if warmed else mine[:2]), *mine[:: -1 if i % 2 else 1]]:
            start = time.perf_counter()
            result = decoders.generate(
                pair,
                prompt,
                method,
                max_new_tokens=args.tokens,
                ignore_eos=True,
                seed=i,
                **sampling,
            )
            took = time.perf_counter() - start
            m = result.metrics
            line = {
                "question": row["question"], "kind": row["kind"], "case": name, "seconds": took,
                "tokens": m.new_tokens, "passes": m.target_calls, "perplexity": m.perplexity,
                "load": os.getloadavg()[0],
                "places": places([result], PLACES) if name.endswith(", 4") else [],
            }  # fmt: skip
            found = [each for each in found if each["case"] != name] + [line]
        with file.open("a") as out:
            out.writelines(json.dumps(line) + "\n" for line in found)


def places(results: list[decoders.Result], most: int) -> list[list[int]]:
    """Draft tokens kept and tested at each place, of those whose places before were kept."""
    counts = [[0, 0] for _ in range(most)]
    for entry in (entry for result in results for entry in result.rounds):
        fates = [trial.fate for trial in entry.trials if trial.fate in TESTED]
        for place, fate in enumerate(fates[:most]):
            counts[place][1] += 1
            counts[place][0] += fate == decoders.Fate.ACCEPTED
    return counts


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def report(file: Path) -> None:
    """Print what the file holds, as Markdown."""
    found = lines(file)
    kinds = list(dict.fromkeys(line["kind"] for line in found))
    seconds: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for line in found:
        seconds[line["case"]][line["kind"]][line["question"]] = line["seconds"]
    asked = len({line["question"] for line in found})
    loads = statistics.median(line["load"] for line in found)
    print(f"{asked} questions, median load average {loads:.1f}\n")
    print(f"| over plain decoding | {' | '.join(kinds)} | median of kinds | tokens a pass |")
    print(f"|---|{'--:|' * (len(kinds) + 2)}")
    for name, (_, _, base) in cases().items():
        mine = [line for line in found if line["case"] == name]
        ratios = {}
        for kind, each in seconds[name].items():
            both = each.keys() & seconds[base][kind].keys()
            if both:
                ratios[kind] = sum(seconds[base][kind][q] for q in both) / sum(
                    each[q] for q in both
                )
        if not ratios:
            continue
        shown = " | ".join(f"{ratios[kind]:.2f}" if kind in ratios else "" for kind in kinds)
        plain = [ratio for kind, ratio in ratios.items() if kind not in COPYING]
        middle = f"{statistics.median(plain):.2f}" if plain else ""
        passes = sum(line["tokens"] for line in mine) / sum(line["passes"] for line in mine)
        print(f"| {name} | {shown} | {middle} | {passes:.2f} |")
    for name in ("speculative, 4", "speculative 0.7, 4"):
        each = [line["places"] for line in found if line["case"] == name]
        counts = [[sum(x) for x in zip(*place, strict=True)] for place in zip(*each, strict=True)]
        shares = ", ".join(f"{kept / max(1, of):.2f}" for kept, of in counts)
        print(f"\nkept by place, of those whose places before were kept, {name}: {shares}")
    for name in ("sampling 1", "mtad"):
        if each := [line["perplexity"] for line in found if line["case"] == name]:
            print(f"\nmedian perplexity, {name}: {statistics.median(each):.2f}")
    speeds = [line["tokens"] / line["seconds"] for line in found if line["case"] == "greedy"]
    print(f"\ngreedy: {statistics.median(speeds):.0f} tokens/s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=10, help="questions of a kind")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--cases", nargs="+", choices=list(cases()))
    parser.add_argument("--head")
    parser.add_argument("--file", type=Path, default=Path("smollm2-speed.jsonl"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    measure(args.file, args)
    report(args.file)


if __name__ == "__main__":
    main()
