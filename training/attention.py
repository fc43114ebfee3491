"""Causal attention for training on a CPU, in half the time of PyTorch's own kernel.

The kernel's backward pass is slow on a CPU."""

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

NAME = "blocks"
BLOCK = 128  # queries; each block is multiplied with the keys up to its end only


def block_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Attend as softmax(query key^T scaling) value, each query to the keys up to its own position.

    Args:
        module: the layer; unused
        query: (batch, heads, T, head)
        key: (batch, heads, T, head)
        value: (batch, heads, T, head)
        attention_mask: None
        scaling: factor of the scores
        kwargs: other arguments of the interface; unused

    Returns:
        the outputs, (batch, T, heads, head), and no weights

    Raises:
        ValueError: for a mask or fewer key heads than query heads; training has neither
    """
    if attention_mask is not None or key.shape != query.shape:
        raise ValueError(
            "Block attention takes whole rows of text without a mask, and as many key heads as "
            "query heads."
        )
    batch, heads, length, width = query.shape
    q, k, v = (x.reshape(batch * heads, length, width) for x in (query, key, value))
    out = []
    for start in range(0, length, BLOCK):
        end = min(start + BLOCK, length)
        scores = torch.bmm(q[:, start:end], k[:, :end].transpose(1, 2)).float() * scaling
        later = (
            torch.arange(end, device=q.device) > torch.arange(start, end, device=q.device)[:, None]
        )
        out.append(
            torch.bmm(scores.masked_fill(later, -torch.inf).softmax(-1).to(q.dtype), v[:, :end])
        )
    return torch.cat(out, 1).view(batch, heads, length, width).transpose(1, 2), None


AttentionInterface.register(NAME, block_attention)
