"""Text the target writes itself: the draft is judged on it, so the draft learns from it."""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from corpus import END_ID, Mixture
from project import decoders
from recipe import Recipe
from saving import atomic
from tqdm import tqdm

AT_ONCE = 64  # requests in flight
WORTH_A_PROCESS = 4  # batches, as a process takes some ten seconds to start
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


def write_some(work: Path, mixture: Mixture, recipe: Recipe, device: str, numbers: list[int]) -> None:
    """The batches of these numbers, each a file of `work/own`, by the model saved in `work/teacher`: loaded from a folder it has
    recorded passes, which take two thirds of the time of plain ones."""
    pair = decoders.load_pair(work / "teacher", None, device=device)
    for i in tqdm(numbers, desc="own text"):
        rng = np.random.default_rng([recipe.seed, i])
        prompts = mixture.batch(rng, recipe.own_rows, recipe.own_length // 8 - 1)
        ids = write_batch(pair, prompts, recipe.own_length, i * recipe.own_rows, **SETTINGS[i % len(SETTINGS)])
        with atomic(work / "own" / f"{i:04}.npy") as temporary, open(temporary, "wb") as file:
            np.save(file, ids)


def write(mixture: Mixture, work: Path, recipe: Recipe, device: str) -> Mixture:
    """`own_batches` of texts begun like the mixture's, in the precision the target will be used in. Those already in `work/own`
    stay, so it resumes after a kill. On a CPU one process a core: two threads of one are hardly quicker than one."""
    (work / "own").mkdir(exist_ok=True)
    files = [work / "own" / f"{i:04}.npy" for i in range(recipe.own_batches)]
    missing = [i for i, path in enumerate(files) if not path.is_file()]
    processes = min(os.cpu_count() or 1, len(missing) // WORTH_A_PROCESS) if device == "cpu" else 1
    if processes > 1:
        shares = [missing[k::processes] for k in range(processes)]
        context = get_context("spawn")  # a fork would inherit torch's threads
        with ProcessPoolExecutor(processes, context, torch.set_num_threads, (1,)) as pool:
            list(pool.map(partial(write_some, work, mixture, recipe, device), shares))
    elif missing:
        write_some(work, mixture, recipe, device, missing)
    return Mixture([np.concatenate([np.load(path) for path in files])], [1.0])
