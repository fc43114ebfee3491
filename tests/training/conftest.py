"""Made-up text to train on."""

import lzma
import random
from pathlib import Path

import pytest

WORDS = ["small", "red", "fox", "bear", "went", "saw", "old", "tree", "then", "home", "sky"]


def story(rng: random.Random) -> str:
    sentences = (
        " ".join(rng.choices(WORDS, k=rng.randint(5, 12))).capitalize() + "." for _ in range(8)
    )
    return "\n".join(sentences)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small files in the format of ../shared/data; the second varies some texts of the
    first."""
    folder, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    stories = [story(rng) for _ in range(60)]
    texts = {
        "tinystories": stories,
        "snakes_stories": [f"User: Tell it.\nAssistant: {text}" for text in stories[:30]],
    }
    for name, documents in texts.items():
        with lzma.open(folder / f"{name}.txt.xz", "wt", encoding="utf-8") as file:
            file.write("".join(f"{document}\n<|endoftext|>\n" for document in documents))
    return folder
