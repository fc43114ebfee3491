"""Text the target writes itself: the draft is judged on it, so the draft learns from it."""

from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from corpus import END_ID, Mixture
from recipe import Recipe
from saving import atomic
from tqdm import tqdm
from transformers import PreTrainedModel


@torch.no_grad()
def write_batch(target: PreTrainedModel, prompts: torch.Tensor, length: int, seed: int, greedy: bool) -> np.ndarray:
    """Continues prompts (B, P) to `length` tokens or the end of the text; one uint16 array, each text ended."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        how = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 20, "top_p": 0.9}
        rows = target.generate(
            prompts, max_new_tokens=length - prompts.shape[1], attention_mask=torch.ones_like(prompts), **how
        )
    texts = []
    for row in rows.cpu().numpy().astype(np.uint16):
        ends = np.flatnonzero(row[prompts.shape[1] :] == END_ID)
        texts.append(row[: prompts.shape[1] + ends[0]] if len(ends) else row)
    return np.concatenate([np.append(text, np.uint16(END_ID)) for text in texts])


def write(target: PreTrainedModel, mixture: Mixture, work: Path, recipe: Recipe, device: str) -> Mixture:
    """`own_batches` of texts begun like the mixture's and written half at T=1 (top-k 20, top-p 0.9), half at T=0, the
    settings acceptance is measured at. Those already in `work/own` stay, so it resumes after a kill."""
    (work / "own").mkdir(exist_ok=True)
    author = deepcopy(target).to(device, torch.bfloat16).eval()  # the precision it will be used in
    files = [work / "own" / f"{i:04}.npy" for i in range(recipe.own_batches)]
    for i, path in enumerate(tqdm(files, desc="own text")):
        if not path.is_file():
            rng = np.random.default_rng([recipe.seed, i])
            prompts = torch.from_numpy(mixture.batch(rng, recipe.own_rows, recipe.own_length // 8 - 1)).to(device)
            ids = write_batch(author, prompts, recipe.own_length, recipe.seed + i, greedy=i % 2 == 1)
            with atomic(path) as temporary, open(temporary, "wb") as file:
                np.save(file, ids)
    return Mixture([np.concatenate([np.load(path) for path in files])], [1.0])
