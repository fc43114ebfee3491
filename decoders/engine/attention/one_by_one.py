"""Attention of packed tokens request by request, on any device and in any dtype."""

import torch
from torch.nn.functional import scaled_dot_product_attention


def attend_one_by_one(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    segments: torch.Tensor,
    table: torch.Tensor,
    masks: torch.Tensor,
    biases: torch.Tensor,
    scale: float,
    softcap: float,
    window: int = 0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend with a call of SDPA for each request; see `operator.attend` for the arguments."""
    parts = []
    for start, stop, base, past, mask_start, bias_start, opening in segments.tolist():
        n, total = stop - start, past + stop - start
        if n == 0:
            continue
        hides, begin, bias = mask_start < 0 and 0 < window < total, base, None
        causal = bias_start < 0 and mask_start < 0 and past == 0 and n > 1 and not hides
        if bias_start >= 0:
            bias = biases[bias_start : bias_start + n * total].view(n, total)
        # `pack` prepares no biases where attention usually has a kernel.
        elif mask_start >= 0 or (n > 1 and not causal):
            seen = q.new_ones(n, total, dtype=torch.bool).tril(past)
            if mask_start >= 0:
                seen[:, opening:] = masks[mask_start : mask_start + n * (total - opening)].view(
                    n, total - opening
                )
            elif hides:
                seen = seen.triu(past - window + 1)
            bias = q.new_zeros(n, total).masked_fill(~seen, float("-inf"))
        elif hides:  # a single token
            begin = base + total - window
        key, value = (t[begin : base + total].transpose(0, 1)[None] for t in (keys, values))
        parts.append(
            attend_request(q[None, :, start:stop], key, value, bias, causal, scale, softcap, sinks)
        )
    return torch.cat(parts, 2)[0].transpose(0, 1).contiguous()


def attend_request(
    q: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    causal: bool,
    scale: float,
    softcap: float,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend with one request's tokens.

    q (1, H, n, D), key and value (1, K, rows, D) -> (1, H, n, D'). No key is repeated for the query
    heads that share it: the queries of a single token become queries of one head, those of several
    tokens become a batch over the same keys.

    Args:
        bias: what is added to the scores, (n, rows), or None
        causal: whether the tokens have all the rows and each sees only those up to its own
        sinks: for each head the score of its sink, (H,), or None
    """
    _, heads, n, size = q.shape
    groups = heads // key.shape[1]
    if groups > 1:
        q = q.reshape(-1, groups, n, size)
        q = q.view(1, -1, groups, size) if n == 1 else q.transpose(0, 1)
        if n > 1:
            key, value = key.expand(groups, -1, -1, -1), value.expand(groups, -1, -1, -1)
    if not softcap and sinks is None:
        out = scaled_dot_product_attention(q, key, value, bias, is_causal=causal, scale=scale)
    else:
        scores = q @ key.transpose(-1, -2) * (scale / (softcap or 1.0))
        scores = softcap * torch.tanh(scores) if softcap else scores
        if causal:
            bias = q.new_full((n, n), float("-inf")).triu(1)
        scores = scores if bias is None else scores + bias
        if sinks is not None:
            sunk = sinks.view(-1, groups)  # (K, groups), as the heads lie
            sunk = sunk[None, :, :, None] if n == 1 else sunk.T[:, :, None, None]
            scores = torch.cat([scores, sunk.to(scores.dtype).expand(*scores.shape[:-1], 1)], -1)
        shares = scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(
            value.dtype
        )
        out = shares[..., : key.shape[-2]] @ value
    if groups > 1:
        # A view would fail where the kernel that SDPA chose lays heads side by side.
        out = (
            out.reshape(1, heads, 1, -1) if n == 1 else out.transpose(0, 1).reshape(1, heads, n, -1)
        )
    return out
