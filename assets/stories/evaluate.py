"""Measures a saved pair on text it never saw and writes the figures into the model card.

    python assets/stories/evaluate.py --work ~/.cache/llama-stories/interim

The work folder is the one train.py used: it holds the held-out split, the training tokens of the 5-gram model and the log.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from card import figures_as_markdown, fill
from corpus import END_ID
from ngram import KneserNey
from torch.nn import functional as F
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

HERE = Path(__file__).parent
STORIES = ("tinystories", "tinystories_recased", "snakes_stories", "storybooks")
NEW_TOKENS = 60  # of the completions: loops are counted and acceptance is promised within them
# What the pairs are compared at, before and after: fixed before the training that they judge.
POOLED = (
    "tinystories",
    "tinystories_recased",
    "snakes_stories",
)  # held-out loss, of `--limit` tokens a set, pooled by token
SETTINGS = {  # speculative decoding on all openings and instructions, request i with seed i
    "T=0": {"temperature": 0.0},
    "T=1, top-k 20, top-p 0.9": {"temperature": 1.0, "top_k": 20, "top_p": 0.9},
    "T=0.8, top-p 0.95": {"temperature": 0.8, "top_p": 0.95},
}
GAMMA, SPECULATED = 4, 64  # draft tokens a round, new tokens a prompt
BLIND = {
    "temperature": 0.8,
    "top_p": 0.95,
}  # stories for the comparison by eye: opening i with seed i, sides drawn with seed 60
BLIND_TOKENS, BLIND_SEED = 120, 60
WARP = LogitsProcessorList([TemperatureLogitsWarper(1.0), TopKLogitsWarper(20), TopPLogitsWarper(0.9)])


@torch.inference_mode()
def log_probs(model: PreTrainedModel, ids: np.ndarray) -> np.ndarray:
    """Natural log-probabilities of ids[1:], each given up to a context of those before it: (T,) -> (T - 1,)."""
    length, out = model.config.max_position_embeddings - 1, []
    for at in range(0, len(ids) - 1, length):
        tokens = torch.from_numpy(ids[at : at + length + 1].astype(np.int64))[None]
        logits = model(tokens[:, :-1], use_cache=False).logits.float()
        out.append(-F.cross_entropy(logits[0], tokens[0, 1:], reduction="none").numpy())
    return np.concatenate(out)


def perplexities(
    models: Mapping[str, PreTrainedModel], tokenizer: PreTrainedTokenizerBase, work: Path, limit: int
) -> dict[str, dict[str, float]]:
    """Held-out tokens, bytes, and for each model and a 5-gram perplexity per token and bits per byte; by file, of the
    story files together and of all, at most `limit` tokens of a file."""
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
            row[f"{label} per token"] = float(np.exp(nats / row["tokens"]))
            row[f"{label} per byte"] = float(np.exp(nats / row["bytes"]))
    return {name: row for name, row in rows.items() if name not in totals} | {name: rows[name] for name in totals}


@torch.inference_mode()
def complete(
    target: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: list[str], seed: int, **how
) -> list[list[int]]:
    """New token ids for each prompt, at most NEW_TOKENS, without the end of text; `how` goes to `generate`."""
    batch = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
    torch.manual_seed(seed)
    rows = target.generate(**batch, max_new_tokens=NEW_TOKENS, **how)[:, batch.input_ids.shape[1] :].tolist()
    return [row[: row.index(END_ID)] if END_ID in row else row for row in rows]


@torch.inference_mode()
def expected_acceptance(
    target: PreTrainedModel, draft: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: list[str], seed: int
) -> dict[str, float]:
    """Leviathan's alpha as the forward passes promise it, over text the target writes after the prompts: at T=0 how often
    the two argmaxes agree, at T=1 (top-k 20, top-p 0.9) the mean of sum min(p, q)."""
    greedy = complete(target, tokenizer, prompts, seed, do_sample=False)
    sampled = complete(target, tokenizer, prompts, seed, do_sample=True, temperature=1.0, top_k=20, top_p=0.9)
    values: dict[str, list[torch.Tensor]] = {"T=0": [], "T=1": []}
    for prompt, *texts in zip(prompts, greedy, sampled, strict=True):
        for label, text in zip(values, texts, strict=True):
            if not text:
                continue
            ids = torch.tensor([tokenizer.encode(prompt) + text])
            p, q = (m(ids).logits[0, -len(text) - 1 : -1].float() for m in (target, draft))
            if label == "T=0":
                values[label].append((p.argmax(-1) == q.argmax(-1)).float())
            else:
                p, q = (WARP(None, x).softmax(-1) for x in (p, q))
                values[label].append(torch.minimum(p, q).sum(-1))
    return {label: torch.cat(parts).mean().item() for label, parts in values.items()}


def loops(ids: list[int], run: int = 8) -> bool:
    """Whether some run of so many tokens occurs twice."""
    runs = [tuple(ids[i : i + run]) for i in range(len(ids) - run + 1)]
    return len(set(runs)) < len(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the work folder of train.py")
    parser.add_argument("--pair", type=Path, default=HERE, help="the folder that holds target/ and draft/")
    parser.add_argument("--limit", type=int, default=20_000, help="held-out tokens of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--card", type=Path, default=HERE / "README.md", help="the model card to fill in")
    args = parser.parse_args()
    target, draft = (
        AutoModelForCausalLM.from_pretrained(args.pair / n, dtype=torch.float32) for n in ("target", "draft")
    )
    tokenizer = AutoTokenizer.from_pretrained(args.pair / "target")
    prompts = json.loads((HERE / "prompts.json").read_text())
    every = prompts["openings"] + prompts["instructions"]
    shown = prompts["openings"][::7] + prompts["instructions"]
    greedy = complete(target, tokenizer, every, args.seed, do_sample=False)
    samples = complete(target, tokenizer, shown, args.seed, do_sample=True, temperature=0.8, top_k=0)
    figures = {
        "parameters": {"target": target.num_parameters(), "draft": draft.num_parameters()},
        "corpus": json.loads((args.work / "tokens" / "report.json").read_text()),
        "perplexity": perplexities({"target": target, "draft": draft}, tokenizer, args.work, args.limit),
        "acceptance": expected_acceptance(target, draft, tokenizer, every, args.seed),
        "loops": {"looping": sum(map(loops, greedy)), "of": len(greedy)},
        "samples": [[p, tokenizer.decode(ids)] for p, ids in zip(shown, samples, strict=True)],
        "log": [json.loads(line) for line in (args.work / "losses.jsonl").read_text().splitlines()],
    }
    args.card.write_text(fill(args.card.read_text(), "figures", figures_as_markdown(figures)))


if __name__ == "__main__":
    main()
