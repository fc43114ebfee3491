"""Text the target writes itself: the draft is judged on it, so the draft learns from it."""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

import decoders
from training.corpus import END_ID, Mixture
from training.recipe import Recipe
from training.saving import atomic

AT_ONCE = 64  # requests in flight
WORTH_A_PROCESS = 4  # batches, as a process takes some ten seconds to start
# Batch i is written with the i-th of these, in turn: the settings at which acceptance is measured,
# and greedy decoding, without which no draft learns loops.
SETTINGS = (
    {"temperature": 0.0},
    {"temperature": 0.8, "top_p": 0.95},
    {"temperature": 1.0, "top_k": 20, "top_p": 0.9},
)


def write_batch(
    pair: decoders.ModelPair, prompts: np.ndarray, length: int, seed: int, **how: float
) -> np.ndarray:
    """Continue prompts to `length` tokens or the end of the text.

    Args:
        pair: its target writes
        prompts: (B, P) token ids
        length: tokens of a text, prompt included
        seed: of the first text
        how: temperature, top_k and top_p

    Returns:
        one uint16 array of token ids, each text ended

    Raises:
        ModelError: if the target fails
    """
    options = {
        "max_new_tokens": length - prompts.shape[1],
        "max_batch": AT_ONCE,
        "seed": seed,
        **how,
    }
    results = decoders.generate(pair, prompts.tolist(), "multinomial", **options)
    for result in results:
        if result.error is not None:
            raise result.error
    texts = [
        [*prompt, *(t for t in r.tokens if t != END_ID), END_ID]
        for prompt, r in zip(prompts, results, strict=True)
    ]
    return np.concatenate([np.array(text, np.uint16) for text in texts])


def write_some(
    work: Path, mixture: Mixture, recipe: Recipe, device: str, numbers: list[int]
) -> None:
    """Write the batches of these numbers, each to a file of `work/own`.

    The model saved in `work/teacher` writes them. As it is loaded from a folder, it has recorded
    passes, which take two thirds of the time of plain ones.

    Args:
        work: the work folder
        mixture: its texts begin the batches
        recipe: size and number of the texts
        device: where the model runs
        numbers: of the batches
    """
    pair = decoders.load_pair(work / "teacher", None, device=device)
    for i in tqdm(numbers, desc="own text"):
        rng = np.random.default_rng([recipe.seed, i])
        prompts = mixture.batch(rng, recipe.own_rows, recipe.own_length // 8 - 1)
        ids = write_batch(
            pair, prompts, recipe.own_length, i * recipe.own_rows, **SETTINGS[i % len(SETTINGS)]
        )
        with atomic(work / "own" / f"{i:04}.npy") as temporary, open(temporary, "wb") as file:
            np.save(file, ids)


def write(mixture: Mixture, work: Path, recipe: Recipe, device: str) -> Mixture:
    """Write `own_batches` of texts that begin as those of the mixture.

    They are written in the precision that the target will be used in. Batches that are in
    `work/own` stay, so the work resumes after a kill. On a CPU there is one process a core: two
    threads of one process are hardly quicker than one.

    Args:
        mixture: its texts begin the batches
        work: the work folder
        recipe: size and number of the texts
        device: where the model runs

    Returns:
        the texts, as a mixture to draw from
    """
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
