"""The sheet of a blind comparison of stories: pairs with shuffled sides, and the key to them."""

import json
import random
from collections import Counter
from pathlib import Path

Stories = list[list[str]]  # [opening, how it went on]
QUESTION = (
    "Which of the two would you rather read on: the same characters, no contradiction, sentences "
    "that follow from each other, something that happens? Write A, B or = after each number in "
    "verdicts.txt, one line a pair, and a reason of a few words."
)


def write_sheet(before: Stories, after: Stories, folder: Path, seed: int) -> None:
    """Write the sheet to read, `folder/sheet.md`, and its key, `folder/key.json`.

    The key holds the side of the new pair for each story.

    Args:
        before: the stories of the old pair
        after: the stories of the new pair, with the same openings
        folder: where the files go
        seed: of the order of the sides

    Raises:
        ValueError: if the openings differ
    """
    if [opening for opening, _ in before] != [opening for opening, _ in after]:
        raise ValueError(
            "The two pairs were given different openings; measure both with the same evaluate.py."
        )
    rng, sheet, key = random.Random(seed), [QUESTION], []
    for number, ((opening, old), (_, new)) in enumerate(zip(before, after, strict=True), 1):
        side = rng.choice("AB")
        a, b = (new, old) if side == "A" else (old, new)
        sheet.append(f"## {number}\n\n{opening}\n\n**A** {a.strip()}\n\n**B** {b.strip()}")
        key.append(side)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sheet.md").write_text("\n\n".join(sheet) + "\n")
    (folder / "key.json").write_text(json.dumps(key) + "\n")


def count_verdicts(key: list[str], verdicts: list[str]) -> Counter[str]:
    """Count how often the new pair, the old pair or neither was preferred.

    Args:
        key: the side of the new pair, "A" or "B", for each story
        verdicts: "A", "B" or "=" for each story

    Raises:
        ValueError: for another number of verdicts or another letter
    """
    if len(key) != len(verdicts) or set(verdicts) - set("AB="):
        raise ValueError(f"{len(key)} verdicts are needed, each of them A, B or =.")
    return Counter(
        "neither" if v == "=" else "new" if v == side else "old"
        for side, v in zip(key, verdicts, strict=True)
    )
