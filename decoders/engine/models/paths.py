"""A text that a model has read with its own cache (Path), and what such caches can do."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from decoders.shapes import NodeId, TokenId


@dataclass(slots=True)
class Path:
    """A text that the model has read.

    Attributes:
        nodes: its nodes from the first on
        tokens: their tokens
        cache: the cache that the model made of them
    """

    nodes: list[NodeId] = field(default_factory=list)
    tokens: list[TokenId] = field(default_factory=list)
    cache: Any = None

    @property
    def tip(self) -> NodeId:
        """The last node, or -1 if there is none."""
        return self.nodes[-1] if self.nodes else -1

    def copy(self) -> "Path":
        return Path(self.nodes[:], self.tokens[:], copied(self.cache))

    def rewind(self, length: int) -> None:
        """Forget all but the first `length` nodes."""
        drop = len(self.nodes) - length
        if drop and isinstance(self.cache, DynamicCache):
            layers: list[Any] = self.cache.layers
            for layer in layers:
                if layer.is_initialized:
                    layer.keys, layer.values = layer.keys[:, :, :-drop], layer.values[:, :, :-drop]
        del self.nodes[length:], self.tokens[length:]
        if not length:
            self.cache = None


def copied(cache: Any) -> Any:
    """Copy a cache, so that reading on with the copy does not change the original.

    Layers that never write into their tensors share them with the copy.
    """
    if not isinstance(cache, DynamicCache):
        return copy.deepcopy(cache)
    other = copy.copy(cache)
    other.layers = [
        copy.copy(layer)
        if type(layer) in (DynamicLayer, DynamicSlidingWindowLayer)
        else copy.deepcopy(layer)
        for layer in cache.layers
    ]
    return other


def tensors(thing: Any, depth: int = 5) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif depth:
        parts = vars(thing) if hasattr(thing, "__dict__") else thing
        parts = list(parts.values()) if isinstance(parts, dict) else parts
        for part in parts if isinstance(parts, (list, tuple)) else ():
            yield from tensors(part, depth - 1)


def cache_bytes(paths: Iterable[Path]) -> int:
    """Bytes of the caches of all these paths; a tensor that several share counts once."""
    sizes: dict[int, int] = {}
    for tensor in (t for path in paths for t in tensors(path.cache)):
        sizes[tensor.data_ptr()] = max(tensor.nbytes, sizes.get(tensor.data_ptr(), 0))
    return sum(sizes.values())


def rewindable(cache: Any) -> bool:
    """Whether a cache holds one row for each token in every layer, and nothing else."""
    return isinstance(cache, DynamicCache) and all(
        type(layer) is DynamicLayer for layer in cache.layers
    )


def begins_rewindable(model: PreTrainedModel) -> bool:
    """Whether the cache that a model begins with is rewindable.

    If transformers cannot make a cache from the config, it is not.
    """
    try:
        return rewindable(DynamicCache(config=model.config.get_text_config(decoder=True)))
    # A pass fails there too, and then the model is refused by name or runs without a cache.
    except Exception:
        return False
