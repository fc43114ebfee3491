"""Two greedy texts that differ, as a visitor pastes them: a fault or a near-tie."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from decoders import InputError, ModelPair, compare_greedy
from workbench.studies import prompts
from workbench.terminal import flags, show

DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")


def compared(
    pair: ModelPair, prompt: str, first: str, second: str, dtype: str, most: int | None = None
) -> dict[str, Any]:
    """The verdict as plain data, see `decoders.Divergence`, and `facts`, its figures in words.

    Args:
        prompt: the prompt, as text or as a list of token ids or messages in JSON
        first: the text after it, as text or as token ids
        dtype: see `decoders.compare_greedy`
        most: see `decoders.compare_greedy`

    Raises:
        InputError: for input that cannot be used
    """
    if not all(isinstance(each, str) for each in (prompt, first, second)):
        raise InputError("The prompt and the texts must be texts; list token ids as in “[5, 9]”.")
    if not prompt:
        raise InputError("The prompt is empty; paste what both texts continue.")
    texts = map(pasted, (prompt, first, second))
    divergence = compare_greedy(pair, *texts, dtype=dtype, most=most)
    facts = ""
    if divergence.place is not None and divergence.tokens[0] != divergence.tokens[1]:
        facts = (
            f"First candidate’s logit less the second’s: {divergence.gap_float32:.6g} in float32, "
            f"{divergence.gap_float64:.6g} in float64. Rounding moves two logits by at most "
            f"{divergence.bound:.2g} in the passes measured."
        )
    return {**asdict(divergence), "facts": facts}


def pasted(text: str) -> Any:
    """A text, the token ids that it lists, as in [5, 9, 3], or the messages."""
    try:
        ids = json.loads(text) if text.strip().startswith("[") else None
    except (ValueError, RecursionError):
        return text
    if isinstance(ids, list) and all(type(i) is int for i in ids):
        return ids
    return prompts.typed(text)


DESCRIPTION = """Say where two greedy texts of one model part, and whether rounding explains it.

Texts are given as they follow the prompt, or as token ids: "[5, 9, 3]". The exit status is 1 for a
fault, 2 for input that cannot be used, else 0."""
EXAMPLES = """examples:
  python -m workbench diverge "Once upon a time" " there was a cat." " there was a dog."
  python -m workbench diverge "[1, 5]" "[9, 3]" "[9, 4]" --texts-in bfloat16
"""


def register(commands: Any) -> None:
    command = flags.command(
        commands, "diverge", "two greedy texts: fault or near-tie", DESCRIPTION, EXAMPLES
    )
    command.set_defaults(command=run)
    flags.add_prompt(command)
    for name in ("first", "second"):
        command.add_argument(name, help=f"the {name} text")
    help = "number type in which they were made, the coarser of two (default: the model's)"
    command.add_argument("--texts-in", choices=DTYPES, default="auto", help=help)
    flags.add_models(command)


def run(args: argparse.Namespace) -> int:
    device, choice = show.loaded(args)
    texts = flags.operand(args), args.first, args.second
    answer = device.ask(choice, compared, *texts, args.texts_in)
    print("\n".join(words for words in (answer["says"], answer["facts"]) if words))
    return int(answer["verdict"] == "fault")
