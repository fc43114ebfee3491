"""The entry of packed attention in the registry of `transformers`.

A model calls it by the name `NAME`, and the packing is passed as the keyword argument `packing` of
the model's forward.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from decoders.engine.attention.one_by_one import attend_request
from decoders.engine.attention.operator import attend, attend_op
from decoders.engine.attention.packing import Layered, Packing, of_layer
from decoders.engine.recording.recorder import as_one_step
from decoders.errors import NotPackedError

NAME = "decoders_packed"
# Arguments that attention may ignore: they are in the packing, or have no effect without padding or
# gradients.
_IGNORED = frozenset({
    "dropout", "is_causal", "position_ids", "use_cache", "cache_position", "output_attentions",
    "output_hidden_states", "output_router_logits", "return_dict", "s_aux", "sliding_window",
    "position_embeddings", "logits_to_keep",
})  # fmt: skip


def only_known(others: dict[str, object]) -> None:
    """Raise NotPackedError if attention gets arguments that packed attention does not model.

    Args:
        others: the arguments by name, apart from those that packed attention takes
    """
    strange = sorted(k for k, v in others.items() if v is not None and k not in _IGNORED)
    if strange:
        raise NotPackedError(
            f"its attention takes {', '.join(strange)}, which the packed attention does not model"
        )


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    softcap: float | None = None,
    packing: Any = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend in a model's layer; this is the function in the registry.

    Args:
        module: the attention layer of the model
        query: (1, H, tokens, D)
        key: (1, K, tokens, D)
        value: (1, K, tokens, D)
        attention_mask: a mask, which is refused
        scaling: factor of the scores; by default D ** -0.5
        softcap: soft cap of the scores, or None
        packing: the Packing or Layered of the pass
        s_aux: for each head the score of its sink, (H,), or None
        others: whatever else the model passes

    Returns:
        the result, (1, tokens, H, D), and None in place of attention weights

    Raises:
        NotPackedError: for a mask or an argument that packed attention does not model
    """
    only_known({**others, "a mask": attention_mask})
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer, softcap = module.layer_idx, softcap or 0.0
    if torch.compiler.is_compiling():
        return attend_layer(
            query, key, value, packing, layer, scale, softcap, s_aux, attend_op
        ), None
    run = attend_parts if of_layer(packing, layer)[0].parts else attend_layer
    return as_one_step(run, query, key, value, packing, layer, scale, softcap, s_aux), None


def attend_layer(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packing: Packing | Layered,
    layer: int,
    scale: float,
    softcap: float,
    sinks: Tensor | None = None,
    run: Callable[..., Tensor] = attend,
) -> Tensor:
    """`attend` in one layer: q (1, H, tokens, D), k, v (1, K, tokens, D) -> (1, tokens, H, D)."""
    packing, layer = of_layer(packing, layer)
    cached = packing.keys[layer], packing.values[layer]
    tables = packing.rows, packing.segments, packing.table, packing.masks, packing.biases
    return run(q[0], k[0], v[0], *cached, *tables, scale, softcap, packing.window, sinks)[None]


def attend_parts(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packing: Packing | Layered,
    layer: int,
    scale: float,
    softcap: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attend as in `attend_layer`, with the parts that `pack` prepared for all layers."""
    packing, layer = of_layer(packing, layer)
    if len(packing.parts) == 1:
        _, stop, bias, causal, keys, values = packing.parts[0]
        key, value, new = keys[layer], values[layer], slice(-stop, None)
        key[:, :, new].copy_(k)
        value[:, :, new].copy_(v)
        return attend_request(q, key, value, bias, causal, scale, softcap, sinks).transpose(1, 2)
    packing.keys[layer].index_copy_(0, packing.rows, k[0].transpose(0, 1))
    packing.values[layer].index_copy_(0, packing.rows, v[0].transpose(0, 1))
    outs = [
        attend_request(
            q[:, :, start:stop], keys[layer], values[layer], bias, causal, scale, softcap, sinks
        )
        for start, stop, bias, causal, keys, values in packing.parts
    ]
    return torch.cat(outs, 2).transpose(1, 2)


# The registry of masks gets no entry, so models build no masks and do not search the positions for
# packed sequences.
AttentionInterface.register(NAME, packed_attention)
