"""Measures a saved pair on text it never saw: held-out loss, acceptance, loops, samples, stories.

The stories are for a comparison by eye.

    python -m training.evaluate --work ~/.cache/llama-stories/full
                                --figures figures.json [--pair FOLDER] [--card README.md]
    python -m training.evaluate --compare before.json after.json --sheet FOLDER

The work folder is the one train.py used: it holds the held-out split, the training tokens of the
5-gram model and the log. No speed is measured here, so it may run beside other work. The second
call makes the sheet of a blind comparison from the figures of two pairs.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import decoders
from training import SHIPPED
from training.blind import write_sheet
from training.card import figures_as_markdown, fill
from training.corpus import END_ID
from training.ngram import KneserNey
from training.saving import atomic

PROMPTS = SHIPPED / "prompts.json"
# Everything that decides a figure, fixed before the training it judges. Request i of a list has
# seed `--seed` + i. The held-out loss of the stories is pooled, token by token.
STORIES = ("tinystories", "tinystories_recased", "snakes_stories")
LIMIT = 20_000  # held-out tokens of each file
SETTINGS = {  # speculative decoding after all openings and instructions
    "T=0": {"temperature": 0.0},
    "T=1, top-k 20, top-p 0.9": {"temperature": 1.0, "top_k": 20, "top_p": 0.9},
    "T=0.8, top-p 0.95": {"temperature": 0.8, "top_p": 0.95},
}
GAMMA, NEW_TOKENS = 4, 64  # draft tokens a round, new tokens a prompt
# a text loops if a run of LOOP_RUN tokens occurs twice in its first LOOP_TOKENS
LOOP_TOKENS, LOOP_RUN = 60, 8
# for samples and the stories of the blind comparison
STORY = {"temperature": 0.7, "top_p": 0.9}
STORY_TOKENS = 120
BATCH = 16  # requests at once


@torch.inference_mode()
def log_probs(model: PreTrainedModel, ids: np.ndarray) -> np.ndarray:
    """Log-probabilities of ids[1:] in nats, given at most a context before: (T,) -> (T - 1,)."""
    length, out = model.config.max_position_embeddings - 1, []
    for at in range(0, len(ids) - 1, length):
        tokens = torch.from_numpy(ids[at : at + length + 1].astype(np.int64))[None]
        logits = model(tokens[:, :-1], use_cache=False).logits.float()
        out.append(-F.cross_entropy(logits[0], tokens[0, 1:], reduction="none").numpy())
    return np.concatenate(out)


def perplexities(
    models: Mapping[str, PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    work: Path,
    limit: int,
) -> dict[str, dict[str, float]]:
    """Loss and perplexity of each model and of a 5-gram model on held-out text.

    Args:
        models: the models, by name
        tokenizer: of all of them
        work: the work folder of training
        limit: most tokens of a file

    Returns:
        by file, of the STORIES together and of all files: tokens, bytes, and for each model the
        loss in
        nats a token, perplexity per token and per byte
    """
    names = json.loads((work / "tokens" / "report.json").read_text())
    held_out = {name: np.load(work / "tokens" / f"{name}.held_out.npy")[:limit] for name in names}
    train = np.concatenate([np.load(work / "tokens" / f"{name}.train.npy") for name in held_out])
    five_gram = KneserNey(train, len(tokenizer))
    rows: dict[str, dict[str, float]] = {}
    totals = ("stories", "all")
    for name, ids in held_out.items():
        if not len(ids):
            continue
        sums = {"tokens": len(ids), "bytes": len(tokenizer.decode(ids[ids != END_ID]).encode())}
        ids = np.concatenate([[END_ID], ids])
        sums |= {label: -float(log_probs(model, ids).sum()) for label, model in models.items()}
        sums["5-gram"] = -float(five_gram.log_probs(np.concatenate([[END_ID] * 3, ids])).sum())
        for row in [name, *["stories"] * (name in STORIES), "all"]:
            rows[row] = {key: rows.get(row, {}).get(key, 0) + value for key, value in sums.items()}
    for row in rows.values():
        for label in (*models, "5-gram"):
            nats = row.pop(label)
            row[f"{label} nats"] = nats / row["tokens"]
            row[f"{label} per token"] = float(np.exp(nats / row["tokens"]))
            row[f"{label} per byte"] = float(np.exp(nats / row["bytes"]))
    return {name: row for name, row in rows.items() if name not in totals} | {
        name: rows[name] for name in totals
    }


def write_texts(
    pair: decoders.ModelPair,
    prompts: list[str],
    method: decoders.Method | str,
    tokens: int,
    seed: int,
    **warping,
) -> list[decoders.Result]:
    """Decode one text for each prompt with the project's own engine; request i draws with seed + i.

    Raises:
        ModelError: if one of the requests failed
    """
    options = {"max_new_tokens": tokens, "seed": seed, "max_batch": BATCH, **warping}
    results = decoders.generate(pair, prompts, method, **options)
    for result in results:
        if result.error is not None:
            raise result.error
    return results


def loops(ids: list[int], run: int = LOOP_RUN) -> bool:
    """Whether some run of `run` tokens occurs twice."""
    runs = [tuple(ids[i : i + run]) for i in range(len(ids) - run + 1)]
    return len(set(runs)) < len(runs)


def acceptance(results: list[decoders.Result]) -> dict[str, float]:
    """Sums over texts and the ratios of speculative decoding; a ratio of nothing is 0.

    Returns:
        the sums, alpha = accepted / tested, accepted / drafted, and block efficiency, the tokens
        that a
        target pass yields
    """
    keys = ("new_tokens", "target_calls", "drafted", "tested", "accepted")
    sums = {"texts": len(results)} | {
        key: sum(getattr(r.metrics, key) for r in results) for key in keys
    }
    return sums | {
        "alpha": sums["accepted"] / max(sums["tested"], 1),
        "accepted_of_drafted": sums["accepted"] / max(sums["drafted"], 1),
        "block_efficiency": sums["new_tokens"] / max(sums["target_calls"], 1),
    }


def measure(
    pair: decoders.ModelPair, prompts: Mapping[str, list[str]], work: Path, limit: int, seed: int
) -> dict[str, Any]:
    """Every figure of a pair, on the prompts of prompts.json and held-out text.

    At most `limit` held-out tokens of each file are read."""
    every = prompts["openings"] + prompts["instructions"]
    shown = prompts["openings"][::7] + prompts["instructions"]
    method = decoders.catalog["speculative"](draft_length=GAMMA)
    texts = {
        name: write_texts(pair, every, method, NEW_TOKENS, seed, **how)
        for name, how in SETTINGS.items()
    }
    looping = {
        name: [loops(r.tokens[:LOOP_TOKENS]) for r in results] for name, results in texts.items()
    }
    straight = {
        name: [r for r, loop in zip(results, looping[name], strict=True) if not loop]
        for name, results in texts.items()
    }
    samples = write_texts(pair, shown, "multinomial", NEW_TOKENS, seed, **STORY)
    stories = write_texts(pair, prompts["blind"], "multinomial", STORY_TOKENS, seed, **STORY)
    return {
        "parameters": {
            "target": pair.target.num_parameters(),
            "draft": pair.draft.num_parameters(),
        },
        "perplexity": perplexities(
            {"target": pair.target, "draft": pair.draft}, pair.tokenizer, work, limit
        ),
        "acceptance": {name: acceptance(results) for name, results in texts.items()},
        "acceptance_without_loops": {
            name: acceptance(results) for name, results in straight.items()
        },
        "loops": {
            name: {"looping": sum(flags), "of": len(flags)} for name, flags in looping.items()
        },
        "samples": [[p, r.text] for p, r in zip(shown, samples, strict=True)],
        "stories": [[p, r.text] for p, r in zip(prompts["blind"], stories, strict=True)],
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, help="the work folder of train.py")
    parser.add_argument(
        "--pair", type=Path, default=SHIPPED, help="the folder that holds target/ and draft/"
    )
    parser.add_argument("--limit", type=int, default=LIMIT, help="held-out tokens of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figures", type=Path, help="where the figures go, as JSON")
    parser.add_argument("--card", type=Path, help="a model card to fill in")
    parser.add_argument(
        "--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"), help="figures of two pairs"
    )
    parser.add_argument(
        "--sheet", type=Path, help="the folder for the sheet of their comparison and its key"
    )
    args = parser.parse_args(arguments)
    if args.compare:
        if args.sheet is None:
            sys.exit("Say where the sheet goes: --sheet FOLDER.")
        before, after = (json.loads(path.read_text())["stories"] for path in args.compare)
        write_sheet(before, after, args.sheet, args.seed)
        return
    if args.work is None or not (args.figures or args.card):
        sys.exit(
            "Name the work folder of train.py with --work, and where the figures go with "
            "--figures or --card."
        )
    pair = decoders.load_pair(args.pair, dtype="float32")
    figures = measure(pair, json.loads(PROMPTS.read_text()), args.work, args.limit, args.seed)
    if args.figures:
        with atomic(args.figures) as path:
            path.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    if args.card:
        figures["corpus"] = json.loads((args.work / "tokens" / "report.json").read_text())
        figures["log"] = [
            json.loads(line) for line in (args.work / "losses.jsonl").read_text().splitlines()
        ]
        args.card.write_text(fill(args.card.read_text(), "figures", figures_as_markdown(figures)))


if __name__ == "__main__":
    main()
