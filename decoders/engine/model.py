"""A model prepared for packed passes (PackedModel), and the passes and cache memory of one run on it (Engine)."""

import inspect
import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from transformers import PreTrainedModel

from decoders.engine import attention, interface
from decoders.engine.answer import Answer, Wants
from decoders.engine.arenas import Arenas, Caches
from decoders.engine.attention import Layered, Packing
from decoders.engine.cache import Arena, CacheRows
from decoders.engine.graphs import Graphs
from decoders.engine.linear import COPIED_BYTES, hasten
from decoders.engine.loaded import Loaded
from decoders.engine.packing import Feed, PackedInputs, missing_ancestors
from decoders.engine.probe import Layout, layout_of, positions_of
from decoders.engine.quantization import stored_bytes
from decoders.engine.reach import Reach
from decoders.engine.replay import Pass, Recorded
from decoders.engine.twin import twin
from decoders.errors import InputError, NotPackedError
from decoders.tree import TokenTree

log = logging.getLogger("decoders")

# How passes run: replayed from recordings (small models on a CPU; others plainly), module by module, as Inductor compiles them, or on a
# GPU replayed from CUDA graphs, which nobody has tried on a device yet.
PASSES = "recorded", "plain", "compiled", "graphs"


class PackedModel(Loaded):
    """A causal language model with packed attention: a twin of the caller's model, which stays as it is. The twin shares its weights,
    except for the copies that linear layers of small models have on a CPU (`decoders.engine.linear`).

    role       "target" or "draft", for messages
    forward    a pass: `plain`, or what gives the same logits in less time
    positions  the most tokens that it can see, or None if its config does not say
    own        size of its own vocabulary;   vocabulary  size of the one it reads and answers for, which a pair gives its draft model:
               tokens that it lacks are impossible, and are fed to it as token 0
    layout     for each layer what its cache holds, and how far back it sees;   spread  whether it is on several devices
    by_request  whether attention takes one request after another
    row_bytes  bytes of one cache row in all layers
    weight_bytes   bytes of weights that one pass reads: all but the embedding tables, of which it reads only some rows
    Raises InputError, with the model's name, if it is not a whole causal language model, and NotPackedError if packed attention does
    not model its attention.
    """

    packed = True

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
        self.spread = len({p.device for p in model.parameters()}) > 1
        self.keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.layout = layout_of(model, self.positions)
        self._twin = twin(model, interface.NAME)
        hasten(self._twin)
        self.by_request = passes != "compiled" and not attention.takes_kernels(self.device, self.dtype)
        self._examples = 0
        self.forward: Pass = self.plain
        self._places: list[tuple[Any, str]] = [
            (m._parameters, name) for m in self._twin.modules() for name, p in m._parameters.items() if p is not None
        ]
        self.row_bytes = sum(self.arenas().row_bytes)
        self.weight_bytes = weight_bytes(model)
        if passes == "recorded" and self.device.type == "cpu" and self.weight_bytes <= COPIED_BYTES:
            self.forward = Recorded(self.plain, self._example, self._weights, self.name, self.positions)
        if passes == "graphs":
            if self.by_request:
                log.warning(
                    "The passes of the %s are not recorded (its attention has no kernel here); they take longer.",
                    self.name,
                )
            else:
                self.forward = Graphs(self.plain, self._weights, self.name)
        self._idle: list[Arenas] = []

    def __call__(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, wanted: torch.Tensor, packing: Packing | Layered
    ) -> torch.Tensor:
        """One pass: input_ids and position_ids (1, tokens), wanted (n,) token indices -> logits (n, V) in the model's dtype."""
        with undisturbed(input_ids.device):
            return self.forward(input_ids=input_ids, position_ids=position_ids, wanted=wanted, packing=packing)

    def plain(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, wanted: torch.Tensor, packing: Packing | Layered
    ) -> torch.Tensor:
        """A pass through the modules of the twin."""
        # Rows on one device cannot be taken by indices on another, which hooks bring elsewhere than the head is; by a list they can.
        keep = {"logits_to_keep": wanted.tolist() if self.spread else wanted} if self.keeps else {}
        if self.own < self.vocabulary:
            input_ids = input_ids.masked_fill(input_ids >= self.own, 0)
        run: Any = self._twin.forward  # the base class declares none
        out = run(input_ids=input_ids, position_ids=position_ids, use_cache=False, packing=packing, **keep)
        return self.over_vocabulary(out.logits[0] if self.keeps else out.logits[0][wanted])

    @property
    def engine_name(self) -> str:
        """How its passes run now, which is plainly where what was asked for does not serve this model or has failed."""
        run = self.forward
        if isinstance(run, (Recorded, Graphs)):
            kind = "recordings" if isinstance(run, Recorded) else "CUDA graphs"
            return "packed passes" if run.failed else f"packed passes, replayed from {kind}"
        return "packed passes" if run == self.plain else "packed passes, compiled"

    @property
    def reaches(self) -> tuple[Reach | None, ...]:
        """For each layer how far back it sees, None if all."""
        return tuple(layer.reach for layer in self.layout)

    def arenas(
        self,
        rows: int = 0,
        most_rows: int | None = None,
        kind: type[CacheRows] = CacheRows,
        layout: Sequence[Layout] | None = None,
    ) -> Arenas:
        return Arenas(layout or self.layout, self.dtype, self.device, rows, most_rows, kind)

    def lend(self, rows: int, most_rows: int | None, kind: type[CacheRows], layout: Sequence[Layout] | None) -> Arenas:
        """Arenas for a run, which begins here. Graphs know those that they were recorded over, so then they are kept for the next run."""
        if isinstance(self.forward, Recorded):
            self.forward.follow()
        if self._idle and most_rows is None and kind is CacheRows and layout is None:
            return self._idle.pop()
        arenas = self.arenas(rows, most_rows, kind, layout)
        ours = most_rows is None and kind is CacheRows and layout is None
        if isinstance(self.forward, Graphs) and ours and arenas.simple:
            arenas.each[0].set_aside()
        return arenas

    def take_back(self, arenas: Arenas) -> bool:
        """Keep arenas that no request uses any more, if they are of use; returns whether they were kept."""
        graphs = self.forward
        if not isinstance(graphs, Graphs) or arenas.each[0].scratch < 0:
            return False
        self._idle.append(arenas)
        graphs.keep([idle.each[0].keys for idle in self._idle])
        return True

    def _weights(self) -> list[torch.Tensor]:
        return [parameters[name] for parameters, name in self._places]

    def _example(self, tokens: int, wanted: int) -> tuple:
        """A pass of one request whose last tokens want logits; no two have the same tokens."""
        self._examples += 1
        tree = TokenTree([(7 * i + 3 * self._examples) % min(self.own, self.vocabulary) for i in range(tokens)])
        arenas = self.arenas()
        caches = arenas.take(tokens, tokens)
        assert caches is not None  # arenas without bounds have room
        feed = Feed(tree, caches[0], tree.trunk, tree.trunk[-wanted:])
        inputs = arenas.pack([feed], {tree: caches}, self.by_request)
        return inputs.input_ids, inputs.position_ids, inputs.wanted[:wanted], inputs.packing


def refuse_unloaded(model: PreTrainedModel, name: str) -> None:
    """Raise InputError unless this is a causal language model with all its weights on devices that compute."""
    if model.config.is_encoder_decoder:
        raise InputError(f"The {name} is an encoder-decoder model; load a causal language model.")
    if model.device.type == "meta":
        raise InputError(f"The {name} has no weights (it is on the meta device); load it with its weights.")
    spread = getattr(model, "hf_device_map", None) or {}  # by the package accelerate
    places = set(map(str, spread.values()))
    if len(places) > 1 and (offloaded := sorted(places & {"cpu", "disk"})):
        raise InputError(
            f"The {name} has weights offloaded to {' and '.join(offloaded)}, which every pass would fetch; load it where there is "
            "room for all of them, or quantised."
        )


def weight_bytes(model: PreTrainedModel) -> int:
    """Bytes of weights that one pass reads: all but the embedding tables, of which it reads only some rows."""
    tables = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]
    head: Any = model.get_output_embeddings()
    looked_up = {id(t) for t in tables if head is None or t is not head.weight}
    return sum(stored_bytes(p) for p in model.parameters() if id(p) not in looked_up)


def undisturbed(device: torch.device) -> AbstractContextManager[None]:
    """For a forward pass: no gradients, the model's own dtype even if the caller has `torch.autocast` on, and memory on this device."""
    quiet = torch.is_inference_mode_enabled() and device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    return nullcontext() if quiet else _undisturbed(device)


@contextmanager
def _undisturbed(device: torch.device) -> Iterator[None]:
    current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    casting = torch.is_autocast_enabled(device.type)
    with current, torch.inference_mode(), torch.autocast(device.type, enabled=False) if casting else nullcontext():
        yield


class Engine:
    """Packed passes of one model for the requests of one run.

    rows   cache rows that the requests are expected to need together;   most_rows  the most that they may have
    layout   what the layers' caches hold, if not as the model's
    """

    cache_kind = CacheRows

    def __init__(
        self, model: PackedModel, rows: int = 0, most_rows: int | None = None, layout: Sequence[Layout] | None = None
    ):
        self.model = model
        self._lent: Arenas | None = None  # while there are requests
        self._wanted = rows, most_rows, self.cache_kind, layout
        self.caches: dict[TokenTree, Caches] = {}

    @property
    def arenas(self) -> Arenas:
        """Where its requests' rows are."""
        assert self._lent is not None  # they are lent to the first request and given back by the last
        return self._lent

    @property
    def arena(self) -> Arena:
        """That of the layers which see farthest; of most models the only one."""
        return self.arenas.each[0]

    def admit(self, tree: TokenTree, rows: int) -> bool:
        """Reserve `rows` cache rows for a request; it gets more when it needs them. Returns False if there is no room now."""
        if self._lent is None:
            self._lent = self.model.lend(*self._wanted)
        caches = self._lent.take(rows, tree.prompt_length)
        if caches is not None:
            self.caches[tree] = caches
        return caches is not None

    def release(self, tree: TokenTree) -> None:
        if (caches := self.caches.pop(tree, None)) is not None:
            self.arenas.give_back(caches)
            if not self.caches and self.model.take_back(self.arenas):
                self._lent = None

    def rows_of(self, tree: TokenTree) -> int:
        """How many cache rows a request uses now, in the layers where it has most."""
        return max(map(len, self.caches[tree]))

    @torch.inference_mode()
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
            held = self.arenas.bytes(self.caches[feed.tree])
            answers.append(Answer(logits, given, held, self.model.weight_bytes))
        return answers

    def feeds(self, wants: Wants, chunk: int | None) -> list[Feed]:
        """What to feed for each request, after dropping the cache rows of dropped nodes."""
        feeds = []
        self.arenas.sync((self.caches[tree], tree) for tree, _ in wants)
        for tree, nodes in wants:
            cache, *_ = self.caches[tree]
            if any(n in cache.row for n in nodes):
                raise RuntimeError("a node was asked about a second time after its logits were dropped")
            missing, wanted = missing_ancestors(tree, cache, nodes), list(nodes)
            if chunk is not None and sum(n < tree.prompt_length for n in missing) > chunk:
                missing, wanted = missing[:chunk], [missing[chunk - 1]]
            feeds.append(Feed(tree, cache, missing, wanted))
        return feeds

    def pack(self, feeds: Sequence[Feed]) -> PackedInputs:
        return self.arenas.pack(feeds, self.caches, self.model.by_request)
