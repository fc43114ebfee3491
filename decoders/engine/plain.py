"""A model that runs with its own cache class, one request at a time: for what packed attention does not model (PlainModel)."""

import copy
import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from decoders.engine.linear import hasten
from decoders.engine.loaded import Loaded
from decoders.engine.model import refuse_unloaded, undisturbed, weight_bytes
from decoders.engine.probe import positions_of
from decoders.engine.twin import twin
from decoders.errors import NotPackedError
from decoders.shapes import Logits, NodeId, TokenId

CACHES = ("past_key_values", "cache_params", "state")  # what models call the argument that carries their cache
OWN_CACHES = ("reformer", "xlnet", "rwkv", "xlstm")  # model types that make a cache of their own if none is given


@dataclass(frozen=True, slots=True)
class Following:
    """How tokens follow a cached text.

    several   several in one pass; otherwise one after another, as models need that forget their state when given several
    cached    with the model's own cache; otherwise every pass takes the whole text
    attention   the attention of transformers that its passes take, None for the one the model was loaded with
    """

    several: bool = True
    cached: bool = True
    attention: str | None = "sdpa"

    @property
    def said(self) -> str:
        """For messages: "with its own cache, one token at a time"."""
        if not self.cached:
            return "without a cache, the whole text in each pass"
        return "with its own cache" if self.several else "with its own cache, one token at a time"


@dataclass(slots=True)
class Path:
    """A text that the model has seen: its nodes from the first on, their tokens, and the cache that the model made of them."""

    nodes: list[NodeId] = field(default_factory=list)
    tokens: list[TokenId] = field(default_factory=list)
    cache: Any = None

    @property
    def tip(self) -> NodeId:
        """The last node, -1 if there is none."""
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
    """A copy that may be read on without changing the first. Layers that never write into their tensors share them with it."""
    if not isinstance(cache, DynamicCache):
        return copy.deepcopy(cache)
    other = copy.copy(cache)
    shares = DynamicLayer, DynamicSlidingWindowLayer
    other.layers = [copy.copy(layer) if type(layer) in shares else copy.deepcopy(layer) for layer in cache.layers]
    return other


def tensors(thing: Any, depth: int = 5) -> Iterator[Tensor]:
    """All tensors inside a cache."""
    if isinstance(thing, Tensor):
        yield thing
    elif depth:
        if hasattr(thing, "__dict__"):
            thing = vars(thing)
        parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, (list, tuple)) else ()
        for part in parts:
            yield from tensors(part, depth - 1)


def cache_bytes(paths: Iterable[Path]) -> int:
    """Of all their caches; what several share counts once."""
    found: dict[int, int] = {}
    for tensor in (t for path in paths for t in tensors(path.cache)):
        found[tensor.data_ptr()] = max(tensor.nbytes, found.get(tensor.data_ptr(), 0))
    return sum(found.values())


def rewindable(cache: Any) -> bool:
    """Whether a cache holds one row for each token in every layer, and nothing else."""
    return isinstance(cache, DynamicCache) and all(type(layer) is DynamicLayer for layer in cache.layers)


def begins_rewindable(model: PreTrainedModel) -> bool:
    """Whether the cache that a model begins with is one; transformers' own error for a config that it cannot make one of means no."""
    try:
        return rewindable(DynamicCache(config=model.config.get_text_config(decoder=True)))
    except (
        Exception
    ):  # of foreign code; a pass fails there too, and then the model is refused by name or run without a cache
        return False


def reserved_positions(model: PreTrainedModel) -> int:
    """How many of a model's positions no token of a text has: RoBERTa's first are those of padding."""
    tables = (getattr(module, "position_embeddings", None) for module in model.modules())
    paddings = (getattr(table, "padding_idx", None) for table in tables)
    return max((padding + 1 for padding in paddings if padding is not None), default=0)


class PlainModel(Loaded):
    """A causal language model that is run as `generate` runs it, on one text after another.

    role, name, own, vocabulary, positions, weight_bytes   as of a `PackedModel`
    following    how tokens follow a cached text;   why  the reason why it is not packed, as a clause
    rewindable   whether its cache can forget its last tokens;   row_bytes  bytes of its cache per token of a text, 0 if constant
    Raises InputError, with the model's name, if it has no weights or another shape than a causal language model.
    """

    packed = False

    @property
    def engine_name(self) -> str:
        """For people: how it runs, and why."""
        return f"{self.following.said}, one request at a time, because {self.why}"

    def __init__(self, model: PreTrainedModel, role: str, vocabulary: int | None, following: Following, why: str):
        self.model, self.role, self.following, self.why = model, role, following, why
        self.name = f"{role} model {model.config.name_or_path or type(model).__name__}"
        refuse_unloaded(model, self.name)
        config = model.config.get_text_config()
        self.own: int = config.vocab_size
        self.vocabulary = vocabulary or self.own
        self.positions = positions_of(config)
        if self.positions is not None:
            self.positions -= reserved_positions(model)
        self.weight_bytes = weight_bytes(model)
        self.row_bytes = 0
        self._twin = model
        if following.attention is not None:
            self._twin = twin(model, following.attention)
            hasten(self._twin)
        taken = inspect.signature(model.forward).parameters
        self.keeps = "logits_to_keep" in taken
        self._cache_name = next((name for name in CACHES if name in taken), "")
        if following.cached and not self._cache_name:
            raise NotPackedError("it takes no cache")
        self.rewindable = not following.cached or begins_rewindable(model)

    def extend(self, path: Path, nodes: Sequence[NodeId], tokens: Sequence[TokenId], last: int) -> tuple[Logits, int]:
        """Let the model read on. Returns the logits (last, V) at the last of the nodes, and the passes that it took."""
        at_once = self.following.several or not self.following.cached or not path.nodes
        parts = [len(tokens)] if at_once else [1] * len(tokens)
        rows, done = [], 0
        for size in parts:
            rows.append(self._pass(path, list(tokens[done : done + size]), min(last, size)))
            path.nodes += nodes[done : done + size]
            path.tokens += tokens[done : done + size]
            done += size
        return torch.cat(rows)[-last:], len(parts)

    def _pass(self, path: Path, tokens: list[TokenId], last: int) -> Tensor:
        given: dict[str, Any] = {"use_cache": self.following.cached}
        if self.following.cached:
            if path.cache is None and self.model.config.model_type not in OWN_CACHES:
                path.cache = DynamicCache(config=self.model.config.get_text_config(decoder=True))
            given[self._cache_name] = path.cache
        else:
            tokens = path.tokens + tokens
        if self.own < self.vocabulary:
            tokens = [t if t < self.own else 0 for t in tokens]
        if self.keeps:
            given["logits_to_keep"] = last
        with undisturbed(self.device):
            out = self._twin(input_ids=torch.tensor([tokens], device=self.device), **given)
        if self.following.cached:
            path.cache = out[self._cache_name]
            self.rewindable = rewindable(path.cache)
        return self.over_vocabulary(out.logits[0, -last:])
