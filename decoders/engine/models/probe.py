"""A model's first pass, which notes what each layer passes to its attention (Probe).

The pass has two tokens and computes no attention. Whatever packed attention does not model is
refused by name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedModel,
)

from decoders.engine.attention.interface import only_known
from decoders.engine.cache import Layout, Reach
from decoders.engine.models.fingerprint import twin
from decoders.errors import NotPackedError, first_line

NAME = "decoders_probe"
# Kinds of layers whose masks are tested.
ATTENTIONS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
NO_LIMIT = 2**20  # the positions at which masks are tested if the config names no limit


@dataclass
class Probe:
    """The notes of a first pass.

    Attributes:
        positions: the most tokens that the model can see, or None
        layers: by number, the contents of each layer's cache
        rules: by the rule of a mask, how far back a token sees
        given: by number, the keys and values of each layer
    """

    positions: int | None
    layers: dict[int, Layout] = field(default_factory=dict)
    rules: dict[Callable, Reach | None] = field(default_factory=dict)
    given: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def note(
        self, layer: int, key: torch.Tensor, value: torch.Tensor, rule: Callable | None
    ) -> None:
        if layer in self.layers:
            # Each of its attentions would overwrite the other's rows.
            raise NotPackedError(
                "a layer attends more than once in a pass, and the packed cache has one place for "
                "each layer"
            )
        if rule is not None and rule not in self.rules:
            self.rules[rule] = reach_of(rule, self.positions or NO_LIMIT, key.device)
        reach = None if rule is None else self.rules[rule]
        # A layer may use the keys and values of an earlier one.
        same = (
            i
            for i, (k, v) in self.given.items()
            if k is key and v is value and self.layers[i].reach == reach
        )
        self.layers[layer] = Layout(
            (key.shape[1], key.shape[3], value.shape[3]), reach, next(same, layer), key.device
        )
        self.given[layer] = key, value


def probing_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    softcap: float | None = None,
    packing: Any = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Note a layer's call; this is the function in the registry of attentions.

    `packing` is a Probe.
    """
    only_known(others)
    if packing is None:
        raise NotPackedError("it does not pass its keyword arguments to its attention")
    rule, window = getattr(attention_mask, "rule", None), others.get("sliding_window")
    for refused, why in (
        (
            # The scale changes from the 8,192nd token of a pass on (floor_scale), whatever the
            # positions are, so no test of a few tokens shows it.
            getattr(module, "attn_temperature_tuning", False)
            and not getattr(module, "use_rope", True),
            "its attention is scaled by a token's place in the pass, which is not its position in "
            "a packed one",
        ),
        (
            rule is None and attention_mask is not None,
            "its attention takes a mask of its own making, which the packed attention does not "
            "model",
        ),
        (
            rule is None and window and not (packing.positions and window >= packing.positions),
            "its attention has a sliding window that its mask does not show",
        ),
    ):
        if refused:
            raise NotPackedError(why)
    packing.note(module.layer_idx, key, value, rule)
    return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3]), None


def probing_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    mask_function: Callable,
    dtype: torch.dtype = torch.bool,
    device: torch.device | None = None,
    **others: Any,
) -> torch.Tensor:
    """Make a mask that carries its rule; this is the function in the registry of masks.

    Some windows exist only in the mask.
    """
    return Ruled.of(
        torch.zeros(batch_size, 1, q_length, kv_length, dtype=dtype, device=device), mask_function
    )


class Ruled(torch.Tensor):
    """A mask that keeps its rule when it is moved to the device of a layer."""

    rule: Callable

    @classmethod
    def of(cls, mask: torch.Tensor, rule: Callable) -> "Ruled":
        ruled = mask.as_subclass(cls)
        ruled.rule = rule
        return ruled

    def to(self, *args: Any, **options: Any) -> "Ruled":
        return self.of(self.as_subclass(torch.Tensor).to(*args, **options), self.rule)


def reach_of(rule: Callable, size: int, device: torch.device) -> Reach | None:
    """Find how far back tokens see.

    Args:
        rule: the rule of a mask, (batch, head, query, keys) -> bool
        size: the number of tokens of a text
        device: where the rule is computed

    Raises:
        NotPackedError: if they see neither everything, nor a window, nor chunks
    """
    keys = torch.arange(size, device=device)

    # The number of tokens that see the first one.
    lasting = int(torch.as_tensor(rule(0, 0, keys, keys[0])).expand(size).sum())
    reaches: list[Reach | None] = [None]
    if lasting < size:
        reaches = [Reach(max(lasting, 1), chunked) for chunked in (False, True)]
    around = [n * lasting + i for n in (1, 2, 3) for i in (-2, -1, 0, 1)]
    places = {
        q for q in (0, 1, size // 2, size // 2 + 1, size - 2, size - 1, *around) if 0 <= q < size
    }
    for query in sorted(places):
        row = torch.as_tensor(rule(0, 0, keys[query], keys)).expand(size)
        if row[query + 1 :].any():
            raise NotPackedError("its attention looks ahead")
        reaches = [
            r
            for r in reaches
            if torch.equal(row, (keys <= query) & (keys >= (int(r.first(query)) if r else 0)))
        ]
    if not reaches:
        raise NotPackedError("its mask hides tokens in a way that the packed cache does not model")
    return reaches[0]


def layout_of(model: PreTrainedModel, positions: int | None) -> list[Layout]:
    """Find what the cache of each layer holds.

    Args:
        model: the caller's model
        positions: the most tokens that it can see, or None

    Raises:
        NotPackedError: if packed attention does not model the model's attention
    """
    config = model.config.get_text_config()
    if kinds := sorted(set(getattr(config, "layer_types", None) or ()) - ATTENTIONS):
        raise NotPackedError(f"it has {' and '.join(kinds)} layers")
    probe = Probe(positions)
    try:
        with torch.inference_mode(), torch.autocast(model.device.type, enabled=False):
            twin(model, NAME).forward(
                input_ids=torch.tensor([[0, 1 % config.vocab_size]], device=model.device),
                position_ids=torch.arange(2, device=model.device)[None],
                use_cache=False,
                packing=probe,
            )
    except NotPackedError:
        raise
    # The model's code can fail in any way on arguments that it does not expect.
    except Exception as error:
        raise NotPackedError(f"it cannot run a packed pass: {first_line(error)}") from None
    if sorted(probe.layers) != list(range(len(probe.layers))) or not probe.layers:
        raise NotPackedError(
            "it does not send all its layers through the attention interface of transformers"
        )
    return [probe.layers[i] for i in range(len(probe.layers))]


AttentionInterface.register(NAME, probing_attention)
AttentionMaskInterface.register(NAME, probing_mask)
