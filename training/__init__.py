"""The training of the embedded pair, Llama-Stories: from text to two models and their card."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "assets" / "stories"  # where the pair ships: weights, card, prompts
DATA = ROOT.parent / "shared" / "data"  # where its text is looked for
