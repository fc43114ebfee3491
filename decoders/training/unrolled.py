"""A head's drafts for all places of a text at once, as training needs them (unrolled)."""

from collections.abc import Iterator
from typing import Any

import torch

from decoders.engine.heads.module import HeadModule


def unrolled(
    module: HeadModule, tokens: torch.Tensor, states: torch.Tensor, steps: int
) -> Iterator[torch.Tensor]:
    """Let a head draft from every place of a text, each time as it will: from its own states.

    Row i is made of token i + 1. In step k it stands at the k-th place of a draft: its state is the
    head's own of row i - 1 in step k - 1, and it sees the rows up to i - k made of the target's
    states, then one row of each step.

    Args:
        module: the head
        tokens: the text, (B, T)
        states: what `module.entering` gives for the target's states, (B, T, W)
        steps: places of a draft

    Yields:
        for each step what the output layer takes after the tokens 1 to T - 1, (B, T - 1, W); in
        step k the first k are of no draft

    Source:
        Li et al. 2025, EAGLE-3 (arXiv 2503.01840), section 3.2: training-time test
    """
    count = tokens.shape[1] - 1
    places = torch.arange(count, device=tokens.device)[None]
    keys: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    entering = states[:, :-1]
    for step in range(steps):

        def attend(
            layer: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, step: int = step
        ) -> torch.Tensor:
            groups = q.shape[1] // k.shape[1]
            k, v = (each.repeat_interleave(groups, 1) for each in (k, v))
            # Of an earlier step j, row i sees the row i - (step - j).
            keys.append(k)
            values.append(v)
            scores = q @ keys[0].transpose(2, 3)
            seen = torch.ones(count, count, dtype=torch.bool, device=q.device).tril(-step)
            scores = scores.masked_fill(~seen, float("-inf"))
            own = [(q * later(keys[j], step - j)).sum(-1, keepdim=True) for j in range(1, step + 1)]
            weights = (
                (torch.cat([scores, *own], -1).float() * layer.scaling).softmax(-1).to(v.dtype)
            )
            mixed = weights[..., :count] @ values[0]
            for j in range(1, step + 1):
                mixed = mixed + weights[..., count + j - 1, None] * later(values[j], step - j)
            return mixed.transpose(1, 2)

        normed, state = module.through(tokens[:, 1:], places, entering, attend)
        yield normed
        entering = later(state, 1, axis=1)


def later(rows: torch.Tensor, places: int, axis: int = 2) -> torch.Tensor:
    """Rows moved to later places; the first ones are zeros."""
    if not places:
        return rows
    kept = rows.narrow(axis, 0, rows.shape[axis] - places)
    return torch.cat([torch.zeros_like(rows.narrow(axis, 0, places)), kept], axis)
