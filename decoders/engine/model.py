"""A model prepared for packed passes (PackedModel), and the passes and cache memory of one run on it (Engine)."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from decoders.engine import attention
from decoders.engine.attention import Packing
from decoders.engine.cache import Arena, CacheRows
from decoders.engine.linear import COPIED_BYTES, hasten
from decoders.engine.loaded import Loaded
from decoders.engine.packing import Feed, PackedInputs, missing_ancestors, pack
from decoders.engine.probe import layout_of, positions_of
from decoders.engine.quantization import stored_bytes
from decoders.engine.replay import Pass, Recorded
from decoders.engine.twin import twin
from decoders.errors import InputError, NotPackedError
from decoders.shapes import Logits, NodeId
from decoders.tree import TokenTree

# How passes run: replayed from recordings (small models on a CPU; others plainly), module by module, or as Inductor compiles them.
PASSES = "recorded", "plain", "compiled"
Wants = Sequence[tuple[TokenTree, Sequence[NodeId]]]  # for each request the nodes whose logits it wants


class PackedModel(Loaded):
    """A causal language model with packed attention: a twin of the caller's model, which stays as it is. The twin shares its weights,
    except for the copies that linear layers of small models have on a CPU (`decoders.engine.linear`).

    role       "target" or "draft", for messages
    forward    a pass: `plain`, or what gives the same logits in less time
    positions  the most tokens that it can see, or None if its config does not say
    own        size of its own vocabulary;   vocabulary  size of the one it reads and answers for, which a pair gives its draft model:
               tokens that it lacks are impossible, and are fed to it as token 0
    layout     for each layer (K, D of keys, D of values);   by_request  whether attention takes one request after another
    row_bytes  bytes of one cache row in all layers
    weight_bytes   bytes of weights that one pass reads: all but the embedding tables, of which it reads only some rows
    Raises InputError, with the model's name, if it is not a whole causal language model, and NotPackedError if packed attention does
    not model its attention.
    """

    packed = True
    engine_name = "packed passes"

    def __init__(self, model: PreTrainedModel, role: str, vocabulary: int | None = None, passes: str = "recorded"):
        self.model, self.role = model, role
        self.name = f"{role} model {model.config.name_or_path or type(model).__name__}"
        config = model.config.get_text_config()
        refuse_unloaded(model, self.name)
        if not getattr(model, "_supports_attention_backend", False):
            raise NotPackedError("it has its own attention")
        self.own: int = config.vocab_size
        self.vocabulary = vocabulary or self.own
        self.positions = positions_of(config)
        self.keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.layout = layout_of(model, self.positions)
        self._twin = twin(model, attention.NAME)
        hasten(self._twin)
        self.by_request = passes != "compiled" and not attention.takes_kernels(self.device, self.dtype)
        self._examples = 0
        self.forward: Pass = self.plain
        self._places: list[tuple[Any, str]] = [
            (m._parameters, name) for m in self._twin.modules() for name, p in m._parameters.items() if p is not None
        ]
        self.row_bytes = sum(heads * (k + v) for heads, k, v in self.layout) * self.dtype.itemsize
        self.weight_bytes = weight_bytes(model)
        if passes == "recorded" and self.device.type == "cpu" and self.weight_bytes <= COPIED_BYTES:
            self.forward = Recorded(self.plain, self._example, self._weights, self.name, self.positions)

    def __call__(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, wanted: torch.Tensor, packing: Packing
    ) -> torch.Tensor:
        """One pass: input_ids and position_ids (1, tokens), wanted (n,) token indices -> logits (n, V) in the model's dtype."""
        with undisturbed(self.device):
            return self.forward(input_ids=input_ids, position_ids=position_ids, wanted=wanted, packing=packing)

    def plain(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, wanted: torch.Tensor, packing: Packing
    ) -> torch.Tensor:
        """A pass through the modules of the twin."""
        keep = {"logits_to_keep": wanted} if self.keeps else {}
        if self.own < self.vocabulary:
            input_ids = input_ids.masked_fill(input_ids >= self.own, 0)
        run: Any = self._twin.forward  # the base class declares none
        out = run(input_ids=input_ids, position_ids=position_ids, use_cache=False, packing=packing, **keep)
        return self.over_vocabulary(out.logits[0] if self.keeps else out.logits[0][wanted])

    def _weights(self) -> list[torch.Tensor]:
        return [parameters[name] for parameters, name in self._places]

    def _example(self, tokens: int, wanted: int) -> tuple:
        """A pass of one request whose last tokens want logits; no two have the same tokens."""
        self._examples += 1
        tree = TokenTree([(7 * i + 3 * self._examples) % min(self.own, self.vocabulary) for i in range(tokens)])
        arena = Arena(self.layout, self.dtype, self.device)
        cache = arena.take(tokens)
        assert cache is not None  # an arena without bounds has room
        inputs = pack([Feed(tree, cache, tree.trunk, tree.trunk[-wanted:])], arena, self.by_request)
        return inputs.input_ids, inputs.position_ids, inputs.wanted[:wanted], inputs.packing


def refuse_unloaded(model: PreTrainedModel, name: str) -> None:
    """Raise InputError unless this is a causal language model with its weights on one device."""
    if model.config.is_encoder_decoder:
        raise InputError(f"The {name} is an encoder-decoder model; load a causal language model.")
    if model.device.type == "meta":
        raise InputError(f"The {name} has no weights (it is on the meta device); load it with its weights.")
    devices = getattr(model, "hf_device_map", None)
    if devices and len(set(devices.values())) > 1:
        raise InputError(f"The {name} is spread over several devices; load it on one (device_map=None).")


def weight_bytes(model: PreTrainedModel) -> int:
    """Bytes of weights that one pass reads: all but the embedding tables, of which it reads only some rows."""
    tables = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]
    head: Any = model.get_output_embeddings()
    looked_up = {id(t) for t in tables if head is None or t is not head.weight}
    return sum(stored_bytes(p) for p in model.parameters() if id(p) not in looked_up)


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """For a forward pass: no gradients, the model's own dtype even if the caller has `torch.autocast` on, and memory on this device."""
    current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with current, torch.inference_mode(), torch.autocast(device.type, enabled=False):
        yield


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

    rows     the raw logits of the whole pass, (n, V), in memory that no later pass writes to: readings look at them when asked
    part     those at its nodes; None if only a part of the prompt was fed: ask again
    cache_bytes, weight_bytes   bytes read of its cache, and of weights, which all requests of the pass share
    waste    None in batches without padding;   passes  forward passes that it took
    """

    rows: Logits
    part: slice | None
    cache_bytes: int
    weight_bytes: int
    waste: Waste | None = None
    passes: int = 1

    @property
    def logits(self) -> Logits | None:
        """The raw logits (nodes, V) at its nodes."""
        return None if self.part is None else self.rows[self.part]


def of_one_pass(answers: Sequence[Answer]) -> list[Answer]:
    """Answers that have rows of their own, over the rows of all together."""
    parts = [answer.logits for answer in answers if answer.logits is not None]
    rows, together, start = torch.cat(parts) if parts else answers[0].rows, [], 0
    for answer in answers:
        part = None if answer.part is None else slice(start, start := start + len(answer.rows[answer.part]))
        together.append(replace(answer, rows=rows, part=part))
    return together


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
        answers, start = [], 0
        for feed, (_, nodes) in zip(feeds, wants, strict=True):
            part = slice(start, start + len(feed.wanted))
            start = part.stop
            given = part if feed.wanted == list(nodes) else None
            answers.append(Answer(logits, given, len(feed.cache) * self.model.row_bytes, self.model.weight_bytes))
        return answers

    def feeds(self, wants: Wants, chunk: int | None) -> list[Feed]:
        """What to feed for each request, after dropping the cache rows of dropped nodes."""
        feeds = []
        for tree, nodes in wants:
            cache = self._caches[tree]
            self.arena.sync(cache, tree)
            if any(n in cache.row for n in nodes):
                raise RuntimeError("a node was asked about a second time after its logits were dropped")
            missing, wanted = missing_ancestors(tree, cache, nodes), list(nodes)
            if chunk is not None and sum(n < tree.prompt_length for n in missing) > chunk:
                missing, wanted = missing[:chunk], [missing[chunk - 1]]
            feeds.append(Feed(tree, cache, missing, wanted))
        return feeds

    def pack(self, feeds: Sequence[Feed]) -> PackedInputs:
        return pack(feeds, self.arena, self.model.by_request)
