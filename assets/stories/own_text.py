"""Text the target writes itself: the draft is judged on it, so the draft learns from it."""

from pathlib import Path

import numpy as np
from corpus import END_ID, Mixture
from fit import in_half
from project import decoders
from recipe import Recipe
from saving import atomic
from tqdm import tqdm
from transformers import PreTrainedModel

AT_ONCE = 64  # requests in flight
# Batch i is written with the i-th of these, in turn: what acceptance is measured at, and greedy text without which no draft learns loops.
SETTINGS = (
    {"temperature": 0.0},
    {"temperature": 0.8, "top_p": 0.95},
    {"temperature": 1.0, "top_k": 20, "top_p": 0.9},
)


def write_batch(pair: decoders.ModelPair, prompts: np.ndarray, length: int, seed: int, **how: float) -> np.ndarray:
    """Continues prompts (B, P) to `length` tokens or the end of the text; one uint16 array, each text ended. ModelError if
    the target fails."""
    options = {"max_new_tokens": length - prompts.shape[1], "max_batch": AT_ONCE, "seed": seed, **how}
    results = decoders.generate(pair, prompts.tolist(), "multinomial", **options)
    for result in results:
        if result.error is not None:
            raise result.error
    texts = [
        [*prompt, *(t for t in r.tokens if t != END_ID), END_ID] for prompt, r in zip(prompts, results, strict=True)
    ]
    return np.concatenate([np.array(text, np.uint16) for text in texts])


def write(target: PreTrainedModel, mixture: Mixture, work: Path, recipe: Recipe, device: str) -> Mixture:
    """`own_batches` of texts begun like the mixture's, in the precision the target will be used in. Those already in `work/own`
    stay, so it resumes after a kill."""
    (work / "own").mkdir(exist_ok=True)
    pair = decoders.ModelPair(in_half(target).to(device), None)
    files = [work / "own" / f"{i:04}.npy" for i in range(recipe.own_batches)]
    for i, path in enumerate(tqdm(files, desc="own text")):
        if not path.is_file():
            rng = np.random.default_rng([recipe.seed, i])
            prompts = mixture.batch(rng, recipe.own_rows, recipe.own_length // 8 - 1)
            ids = write_batch(pair, prompts, recipe.own_length, i * recipe.own_rows, **SETTINGS[i % len(SETTINGS)])
            with atomic(path) as temporary, open(temporary, "wb") as file:
                np.save(file, ids)
    return Mixture([np.concatenate([np.load(path) for path in files])], [1.0])
