"""Picks the prompts of all measurements from held-out documents and writes prompts.json."""

import argparse
import json
import re
from pathlib import Path

from training import DATA, SHIPPED
from training.corpus import documents, find_files, is_held_out
from training.recipe import sizes

OPENINGS = {"tinystories": 36, "tinystories_recased": 6, "snakes_stories": 24}
# of a comparison read by eye: others than the openings above
BLIND = {"tinystories": 29, "tinystories_recased": 7, "snakes_stories": 24}
WORDS = 22  # about 28 tokens: longer than the runs that training and held-out text may share
INSTRUCTIONS = 10


def opening(text: str) -> str | None:
    """The first words of a story's first paragraph that is long enough; titles are not.

    Returns:
        None if there is no such paragraph
    """
    match = re.search(rf"^(?:\S+ ){{{WORDS - 1}}}\S+", text, re.MULTILINE)
    return match and match[0]


def pick(data: Path) -> dict[str, list[str]]:
    """Choose the prompts by their use.

    Args:
        data: the folder of the text files

    Returns:
        "openings" of stories, "instructions", which are `User: ...` lines that ask for a story, and
        "blind", openings that only the blind comparison uses

    Raises:
        RuntimeError: if there are too few documents
    """
    settings = sizes()["full"].corpus
    files = find_files(data, settings)
    held_out = {
        n: [d for d in documents(files[n]) if is_held_out(d, settings.held_out_every)]
        for n in OPENINGS
    }
    asked = [
        d.split("\nAssistant:")
        for d in held_out["snakes_stories"]
        if re.match(r"User: .* (story|tale) called", d)
    ]
    # to be summed up, say
    told = [d for d in held_out["snakes_stories"] if re.match(r"User: .*this story:\n", d)]
    held_out["snakes_stories"] = [turns[1] for turns in asked[INSTRUCTIONS:]] + [
        d.split("\n", 1)[1] for d in told
    ]
    openings, blind = [], []
    for name, count in OPENINGS.items():
        found = [words for text in held_out[name] if (words := opening(text))]
        openings += found[:count]
        unseen = list(dict.fromkeys(words for words in found[count:] if words not in openings))[
            : BLIND[name]
        ]
        if len(unseen) < BLIND[name]:
            raise RuntimeError(f"{name} has {len(unseen)} more openings, {BLIND[name]} are needed.")
        blind += unseen
    instructions = [f"{turns[0]}\nAssistant:" for turns in asked[:INSTRUCTIONS]]
    return {"openings": openings, "instructions": instructions, "blind": blind}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    (SHIPPED / "prompts.json").write_text(
        json.dumps(pick(parser.parse_args().data), indent=1, ensure_ascii=False) + "\n"
    )
