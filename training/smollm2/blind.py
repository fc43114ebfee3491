"""The sheet of a blind reading: SmolLM2's texts by five decoders, in shuffled order, and its key.

    python -m training.smollm2.blind FOLDER [--each 5] [--tokens 128]
    python -m training.smollm2.blind FOLDER --verdicts verdicts.txt

The first makes the texts of the first questions of each of eight kinds, one file a question, and
goes on where it was stopped; then it writes `sheet.md`, which a reader is given alone, and
`key.json`. The second prints, from a reader's letters, one a line, how often each decoder reads
best, with perplexity and repetition beside it. The first reading counts.
"""

import argparse
import json
import random
import statistics
from collections import Counter
from pathlib import Path

import decoders

QUESTIONS = Path(__file__).with_name("questions.jsonl")
COPYING = "summary", "edit"
USED = {"temperature": 0.7, "top_p": 0.9}
DECODERS = "multinomial", "speculative", "mtad", "dsbd", "beam_search"
LETTERS = "ABCDE"
QUESTION = (
    "Which of the five answers reads best: it answers what is asked, its sentences follow from "
    "each other, nothing is said twice? Write a letter, A to E, after each number in "
    "verdicts.txt, one line a question."
)
RUN = 4  # tokens


def questions(each: int) -> list[str]:
    """The first so many questions of each kind, without those that copy a text."""
    found: dict[str, list[str]] = {}
    for line in QUESTIONS.read_text().splitlines():
        row = json.loads(line)
        found.setdefault(row["kind"], []).append(row["question"])
    return [q for kind, some in found.items() if kind not in COPYING for q in some[:each]]


def repetition(tokens: list[int]) -> float:
    """The share of runs of four tokens that stood in the text before."""
    runs = [tuple(tokens[i : i + RUN]) for i in range(len(tokens) - RUN + 1)]
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def write_texts(folder: Path, asked: list[str], tokens: int, pair: decoders.ModelPair) -> None:
    """Write the five texts of each question, as `NNN.json`, that the folder lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, question in enumerate(asked):
        file = folder / f"{number:03}.json"
        if file.is_file():
            continue
        texts = {}
        for name in DECODERS:
            result = decoders.generate(
                pair, [{"role": "user", "content": question}], name, max_new_tokens=tokens,
                seed=number, **USED,
            )  # fmt: skip
            texts[name] = {
                "text": result.text,
                "perplexity": result.metrics.perplexity,
                "repetition": repetition(result.tokens),
            }
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"question": question, "texts": texts}))
        part.replace(file)


def write_sheet(folder: Path, seed: int = 0) -> None:
    """Write `sheet.md` and `key.json`: for each question the decoders in the order shown."""
    rng, sheet, key = random.Random(seed), [QUESTION], []
    for number, row in enumerate(_rows(folder), 1):
        order = rng.sample(DECODERS, len(DECODERS))
        key.append(order)
        shown = [
            f"**{x}** {row['texts'][n]['text'].strip()}"
            for x, n in zip(LETTERS, order, strict=True)
        ]
        sheet.append("\n\n".join([f"## {number}\n\n{row['question']}", *shown]))
    (folder / "sheet.md").write_text("\n\n".join(sheet) + "\n")
    (folder / "key.json").write_text(json.dumps(key) + "\n")


def table(folder: Path, verdicts: list[str]) -> str:
    """How often each decoder was said to read best, as Markdown.

    Raises:
        ValueError: for another number of verdicts or another letter
    """
    key, rows = json.loads((folder / "key.json").read_text()), _rows(folder)
    if len(key) != len(verdicts) or set(verdicts) - set(LETTERS):
        raise ValueError(f"{len(key)} verdicts are needed, each of them a letter from A to E.")
    best = Counter(order[LETTERS.index(v)] for order, v in zip(key, verdicts, strict=True))
    lines = ["| decoder | reads best | perplexity | repeated |", "|---|--:|--:|--:|"]
    for name in DECODERS:
        said = [row["texts"][name] for row in rows]
        perplexity = statistics.median(each["perplexity"] for each in said)
        repeated = statistics.mean(each["repetition"] for each in said)
        lines.append(f"| {name} | {best[name]} of {len(key)} | {perplexity:.2f} | {repeated:.0%} |")
    return "\n".join(lines)


def _rows(folder: Path) -> list[dict]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("[0-9]*.json"))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--each", type=int, default=5, help="questions of a kind")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--verdicts", type=Path, help="a reader's letters, one a line")
    args = parser.parse_args()
    if args.verdicts:
        print(table(args.folder, args.verdicts.read_text().split()))
        return
    write_texts(args.folder, questions(args.each), args.tokens, decoders.load_pair("smollm2"))
    write_sheet(args.folder)


if __name__ == "__main__":
    main()
