"""A pair of GGUF files through llama.cpp's library here, beside llama.cpp's own greedy loop.

    OMP_NUM_THREADS=1 python -m tests.speed.gguf TARGET.gguf DRAFT.gguf [--prompts 4] [--tokens 64]
                                                 [--rounds 5] [--threads 1]

needs `make engines` for llama.cpp's own loop, and the extra `gguf`. T=0, the same token ids,
without the prompts. Prints Markdown: tokens/s as medians over interleaved rounds with the least and
the most, their ratio to llama.cpp's as the median of the rounds' ratios, the draft tokens that are
accepted, and how many texts are llama.cpp's.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import torch

import decoders
from tests.speed.contenders import Contender, Decoded, Library, in_turn, ours
from tests.speed.llama_cpp import BATCH, acceptance, ranged, speed
from tools.engines.places import STORIES, Places

OWN, OWN_BATCH = "llama.cpp's own loop, greedy", f"llama.cpp's own loop, greedy, batch of {BATCH}"


def contenders(pair: decoders.ModelPair, tokens: int) -> dict[str, Contender]:
    """Those that run here, by name."""
    greedy, catalog = decoders.catalog["greedy"](), decoders.catalog
    found = {"greedy": in_turn(ours(pair, greedy, tokens))}
    for length in (2, 3):
        method = catalog["speculative"](draft_length=length, confidence=0.0)
        found[f"speculative, {length} draft tokens"] = in_turn(ours(pair, method, tokens))
    found["specinfer"] = in_turn(ours(pair, catalog["specinfer"](), tokens))
    found[f"greedy, batch of {BATCH}"] = ours(pair, greedy, tokens)
    return found


def table(rounds: list[dict[str, Decoded]]) -> Iterator[str]:
    yield "| | tokens/s | / llama.cpp's | accepted | texts as llama.cpp's |"
    yield "|---|--:|--:|--:|--:|"
    for name, last in rounds[-1].items():
        own = OWN_BATCH if "batch" in name else OWN
        pairs = zip(last.texts, rounds[-1][own].texts, strict=True)
        ratios = [speed(each[name]) / speed(each[own]) for each in rounds]
        yield (
            f"| {name} | {ranged([speed(each[name]) for each in rounds])} | {ranged(ratios, 2)} | "
            f"{acceptance(last)} | {sum(a == b for a, b in pairs)} of {len(last.texts)} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    pair = decoders.load_pair(args.target, args.draft)
    texts = json.loads((STORIES / "prompts.json").read_text(encoding="utf-8"))["openings"]
    ids = [pair.tokenizer(text).input_ids for text in texts[:BATCH]]
    each = contenders(pair, args.tokens)
    places, given = Places(), (args.threads, 1, args.tokens)
    with (
        closing(Library(places, args.target, *given)) as one,
        closing(Library(places, args.target, args.threads, BATCH, args.tokens)) as several,
    ):
        each = {OWN: in_turn(one), OWN_BATCH: several, **each}
        rounds = [
            {
                name: run(ids if "batch" in name else ids[: args.prompts])
                for name, run in (list(each.items())[:: -1 if i % 2 else 1])
            }
            for i in range(-1, args.rounds)
        ][1:]
    rounds = [{name: found[name] for name in each} for found in rounds]
    print("\n".join(table(rounds)))


if __name__ == "__main__":
    main()
