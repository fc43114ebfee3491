"""A model prepared for packed passes (PackedModel), and the passes and cache memory of one run on it (Engine)."""

import copy
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from decoders.engine.attention import NAME, LayoutProbe
from decoders.engine.cache import Arena, CacheRows
from decoders.engine.linear import hasten
from decoders.engine.packing import Feed, PackedInputs, missing_ancestors, pack
from decoders.errors import InputError
from decoders.shapes import Logits, NodeId
from decoders.tree import TokenTree

Wants = Sequence[tuple[TokenTree, Sequence[NodeId]]]  # for each request the nodes whose logits it wants


class PackedModel:
    """A causal language model with packed attention: a twin of the caller's model, which stays as it is. The twin shares its weights,
    except for the copies that linear layers of small models have on a CPU (`decoders.engine.linear`).

    role       "target" or "draft", for messages
    forward    the twin's forward; replace it with a compiled one to compile passes
    positions  the most tokens that it can see, or None if its config does not say
    layout     for each layer (K, D of keys, D of values);   groups  most query heads that share a key head
    row_bytes  bytes of one cache row in all layers
    weight_bytes   bytes of weights that one pass reads: all but the embedding tables, of which it reads only some rows
    Raises InputError, with the model's name, if packed attention does not model its attention.
    """

    def __init__(self, model: PreTrainedModel, role: str):
        self.model, self.role = model, role
        self.name = f"{role} model {model.config.name_or_path or type(model).__name__}"
        config = model.config.get_text_config()
        if model.config.is_encoder_decoder:
            raise InputError(f"The {self.name} is an encoder-decoder model; load a causal language model.")
        if model.device.type == "meta":
            raise InputError(f"The {self.name} has no weights (it is on the meta device); load it with its weights.")
        if getattr(model, "hf_device_map", None) and len(set(model.hf_device_map.values())) > 1:
            raise InputError(f"The {self.name} is spread over several devices; load it on one (device_map=None).")
        if not getattr(model, "_supports_attention_backend", False):
            raise InputError(
                f"The {self.name} ({model.config.model_type}) has its own attention; take a model that uses the attention interface of transformers."
            )
        if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
            kinds = sorted(set(config.layer_types) - {"full_attention"})
            raise InputError(f"The {self.name} has {' and '.join(kinds)} layers; only full attention can be packed.")
        self.vocabulary: int = config.vocab_size
        self.positions: int | None = getattr(config, "max_position_embeddings", None)
        packed = twin(model, NAME)
        hasten(packed)
        self.forward: Callable = packed.forward
        self._keep = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.layout, self.groups = self._probe()
        self.row_bytes = sum(heads * (k + v) for heads, k, v in self.layout) * self.dtype.itemsize
        tables = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]
        head = model.get_output_embeddings()
        looked_up = {id(t) for t in tables if head is None or t is not head.weight}
        self.weight_bytes = sum(p.nbytes for p in model.parameters() if id(p) not in looked_up)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    def __call__(self, input_ids, position_ids, wanted, packing) -> torch.Tensor:
        """One pass: input_ids and position_ids (1, tokens), wanted (n,) token indices -> logits (n, V) in the model's dtype."""
        keep = {"logits_to_keep": wanted} if self._keep else {}
        with torch.inference_mode():
            logits = self.forward(
                input_ids=input_ids, position_ids=position_ids, use_cache=False, packing=packing, **keep
            ).logits[0]
        return logits if self._keep else logits[wanted]

    def _probe(self) -> tuple[list[tuple[int, int, int]], int]:
        probe = LayoutProbe()
        ids = torch.zeros(1, 2, dtype=torch.long, device=self.device)
        try:
            self(ids, torch.tensor([[0, 1]], device=self.device), torch.tensor([0, 1], device=self.device), probe)
        except InputError as error:
            raise InputError(f"The {self.name} cannot be run: {error}") from None
        except Exception as error:  # foreign code can fail in any way on arguments that it does not expect
            raise InputError(
                f"The {self.name} ({self.model.config.model_type}) cannot run a packed pass: {error}."
            ) from None
        if sorted(probe.layers) != list(range(len(probe.layers))) or not probe.layers:
            raise InputError(
                f"The {self.name} does not send all its layers through the attention interface of transformers."
            )
        return [probe.layers[i] for i in range(len(probe.layers))], probe.groups


def twin(model: PreTrainedModel, attention: str) -> PreTrainedModel:
    """A copy of the model that shares its weights and buffers, with its own config, which names another attention.

    So nothing is switched on and off around a pass, and the caller may use the model in another thread at the same time.
    """
    shared = {id(d): d for m in model.modules() for d in (m._parameters, m._buffers)}
    other = copy.deepcopy(model, shared)
    other.config._attn_implementation = attention
    return other


@dataclass(frozen=True, slots=True)
class Waste:
    """What padding added to one pass for one request (see `decoders.engine.padding`).

    tokens   computed only to fill up its input;   rows  added only to align its cache
    longest_growth   the most rows that any request of the batch kept since the last alignment (tau_max of ems-sd.txt eq. 8); 0 if
                     nothing was aligned
    """

    tokens: int
    rows: int
    longest_growth: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one pass for one request, and what it took.

    logits   (nodes, V), raw; None if only a part of the prompt was fed: ask again;   sound  whether every row makes a distribution
    cache_bytes, weight_bytes   bytes read of its cache, and of weights, which all requests of the pass share
    waste    None in batches without padding
    """

    logits: Logits | None
    sound: bool
    cache_bytes: int
    weight_bytes: int
    waste: Waste | None = None


class Engine:
    """Packed passes of one model for the requests of one run.

    rows   cache rows that the requests are expected to need together;   most_rows  the most that they may have
    """

    cache_kind = CacheRows

    def __init__(self, model: PackedModel, rows: int = 0, most_rows: int | None = None):
        self.model = model
        self.arena = Arena(model.layout, model.dtype, model.device, rows, most_rows, self.cache_kind)
        self._caches: dict[TokenTree, CacheRows] = {}

    def admit(self, tree: TokenTree, rows: int) -> bool:
        """Reserve `rows` cache rows for a request; it gets more when it needs them. Returns False if there is no room now."""
        cache = self.arena.take(rows)
        if cache is not None:
            self._caches[tree] = cache
        return cache is not None

    def release(self, tree: TokenTree) -> None:
        if (cache := self._caches.pop(tree, None)) is not None:
            self.arena.give_back(cache)

    def rows_of(self, tree: TokenTree) -> int:
        """How many cache rows a request uses now."""
        return len(self._caches[tree])

    def run(self, wants: Wants, chunk: int | None = None) -> list[Answer]:
        """One forward pass for all requests, with the logits at the nodes that each wants.

        Ancestors that the model has not seen are fed too. Of a request with more than `chunk` prompt tokens to feed, only the first
        `chunk` are fed.
        """
        feeds = self.feeds(wants, chunk)
        inputs = self.pack(feeds)
        logits = self.model(inputs.input_ids, inputs.position_ids, inputs.wanted, inputs.packing)
        if logits.dtype != torch.float64:
            logits = logits.float()
        highest = logits.amax(-1).tolist()  # NaN and infinity show in the maximum; -inf only rules a token out
        answers, start = [], 0
        for feed, (_, nodes) in zip(feeds, wants, strict=True):
            part = slice(start, start + len(feed.wanted))
            start = part.stop
            given = logits[part] if feed.wanted == list(nodes) else None
            sound = all(map(math.isfinite, highest[part]))
            answers.append(Answer(given, sound, len(feed.cache) * self.model.row_bytes, self.model.weight_bytes))
        return answers

    def feeds(self, wants: Wants, chunk: int | None) -> list[Feed]:
        """What to feed for each request, after dropping the cache rows of dropped nodes."""
        feeds = []
        for tree, nodes in wants:
            cache = self._caches[tree]
            moved = cache.sync(tree)
            if moved is not None:
                self.arena.squeeze(cache, moved)
            if any(n in cache.row for n in nodes):
                raise RuntimeError("a node was asked about a second time after its logits were dropped")
            missing, wanted = missing_ancestors(tree, cache, nodes), list(nodes)
            if chunk is not None and sum(n < tree.prompt_length for n in missing) > chunk:
                missing, wanted = missing[:chunk], [missing[chunk - 1]]
            feeds.append(Feed(tree, cache, missing, wanted))
        return feeds

    def pack(self, feeds: Sequence[Feed]) -> PackedInputs:
        return pack(feeds, self.arena, self.model.groups)
