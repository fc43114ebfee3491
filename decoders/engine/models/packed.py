"""A model prepared for packed passes (PackedModel), and the pass that probes its attention (Probe).

The probe has two tokens, computes no attention, and notes what each layer passes to its attention.
Whatever packed attention does not model is refused by name.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Self
from weakref import WeakSet

import torch
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedModel,
)

from decoders.devices import device_of
from decoders.engine.attention import interface
from decoders.engine.attention.interface import only_known
from decoders.engine.cache import CacheRows, Layout, Reach
from decoders.engine.fingerprint import TrialLog, patched, twin
from decoders.engine.graphs import NEEDED, Graphs
from decoders.engine.lowering.lower import Lowering
from decoders.engine.lowering.program import Pass, Program, Programs, runs_plainly
from decoders.engine.models.loaded import Loaded, undisturbed
from decoders.engine.pack import Arenas, Feed, Idle, PackedInputs
from decoders.engine.passes import PackedPasses
from decoders.engine.protocols import Launch, Layers, OpenChain, Passes
from decoders.engine.weights import COPIED_BYTES, BytesRead, hasten
from decoders.errors import NotPackedError, first_line
from decoders.tree import TokenTree

PROBE = "decoders_probe"
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
            twin(model, PROBE).forward(
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


AttentionInterface.register(PROBE, probing_attention)
AttentionMaskInterface.register(PROBE, probing_mask)


def launches(lowering: Lowering) -> Any:
    from decoders.engine.lowering.launches import Launches

    return Launches(lowering)


def way_of(run: Pass, why: str = "") -> str:
    """How passes run now, for people, and why they run module by module if they do."""
    kind = "module by module"
    if isinstance(run, (Programs, Graphs)):
        why = run.why
        if not why:
            kind = run.kind if isinstance(run, Graphs) else "as a program of kernels"
    return f"packed passes, {kind}" + (f" ({why})" if why else "")


IDLE_BYTES = 2**26  # of arenas, the most that are kept between two runs on a CPU
# How passes run: as programs (of the kernels on a CPU, CUDA graphs on a GPU) where there can be
# some, else plainly; or always plainly, module by module.
PASSES = "program", "plain"


class PackedModel(Loaded):
    """A causal language model with packed attention.

    Passes run on a twin of the caller's model, which stays as it is. The twin shares its weights,
    except for the copies that linear layers of small models have on a CPU
    (`decoders.engine.weights`).

    Args:
        model: the caller's model
        role: "target" or "draft", for messages
        vocabulary: size of the vocabulary that it reads and answers for, which a pair gives its
            draft; by default its own. Tokens that it lacks are impossible, and are fed to it as
            token 0.
        passes: one of PASSES
        trials: those of programs that it has passed before

    Attributes:
        forward: a pass: `plain`, or whatever gives the same logits in less time
        layout: the contents of each layer's cache, and how far back the layer sees
        spread: whether it is on several devices
        by_request: whether attention takes one request after another
        row_bytes: bytes of one cache row in all layers

    Raises:
        InputError: with its name, if it is not a whole causal language model
        NotPackedError: if packed attention does not model its attention
    """

    packed, why = True, ""

    def __init__(
        self,
        model: PreTrainedModel,
        role: str,
        vocabulary: int | None = None,
        passes: str = "program",
        *,
        trials: TrialLog | None = None,
    ):
        super().__init__(model, role, vocabulary)
        if not getattr(model, "_supports_attention_backend", False):
            raise NotPackedError("it has its own attention")
        self.spread = len({p.device for p in model.parameters()}) > 1
        self.layout = layout_of(model, self.positions)
        self._twin = twin(model, interface.NAME)
        hasten(self._twin, COPIED_BYTES)
        self.bytes_read = BytesRead(self._twin, self.dtype, self.weight_bytes)
        self.by_request = not interface.takes_kernels(self.device, self.dtype)
        self._examples = 0
        self.row_bytes = sum(self.arenas().row_bytes)
        self.forward, self._why = self._ways(passes, trials)
        self._idle = Idle()
        self._arenas, self._lending = WeakSet[Arenas](), Lock()

    def _ways(self, passes: str, trials: TrialLog | None) -> tuple[Pass, str]:
        """The passes, and why they are plain if they are, though programs were asked for."""
        if passes == "plain":
            return self.plain, ""
        if why := patched(self.model):
            runs_plainly(self.name, why)
            return self.plain, why
        if not self.by_request:
            if not self.arenas().simple or self.spread:
                return self.plain, "its layers have several caches"
            return Graphs(self._programs(trials, launches), self._keys_in_use), ""
        if not device_of(self.device).on_host:
            return self.plain, "its attention has no kernel here"
        if self.weight_bytes > COPIED_BYTES and self.dtype != torch.bfloat16:
            return self.plain, "it is too large for copies of its weights; bfloat16 needs none"
        return self._programs(trials, Program), ""

    def _programs(self, trials: TrialLog | None, carrier: Callable[[Lowering], Any]) -> Programs:
        return Programs(
            self.plain,
            self._example,
            self.name,
            self.positions,
            trials=trials,
            carrier=carrier,
            instead="run module by module" if self.by_request else "are recorded module by module",
        )

    def ready(self) -> Self:
        """Make the program of its passes now, so that the first text does not wait."""
        if isinstance(self.forward, Programs):
            with undisturbed(self.device):
                self.forward.serving(1)
        return self

    def __call__(self, inputs: PackedInputs, features: Layers = ()) -> tuple[torch.Tensor, ...]:
        """Run one pass.

        Args:
            inputs: the tensors of the pass
            features: layers whose hidden states are returned for all tokens

        Returns:
            in the model's dtype the logits of the tokens that want them, (n, V), and for each of
                these layers the hidden states of all tokens of the pass, (tokens, H)
        """
        with undisturbed(self.device):
            return self.forward(**inputs._asdict(), features=features)

    def plain(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        wanted: torch.Tensor,
        packing: interface.Packing | interface.Layered,
        features: Layers,
    ) -> tuple[torch.Tensor, ...]:
        # Hooks bring the indices to another device than the head's, where they cannot select rows;
        # a list can.
        keep = {"logits_to_keep": wanted.tolist() if self.spread else wanted} if self.keeps else {}
        if self.own < self.vocabulary:
            input_ids = input_ids.masked_fill(input_ids >= self.own, 0)
        also = {"output_hidden_states": True} if features else {}
        out: Any = self._twin(
            input_ids=input_ids,
            position_ids=position_ids,
            use_cache=False,
            packing=packing,
            **keep,
            **also,
        )
        return (
            self.over_vocabulary(out.logits[0] if self.keeps else out.logits[0][wanted]),
            *(out.hidden_states[layer][0] for layer in features),
        )

    @property
    def engine_name(self) -> str:
        return way_of(self.forward, self._why)

    @property
    def graphs(self) -> Graphs | None:
        return self.forward if isinstance(self.forward, Graphs) else None

    def launch(
        self,
        graphs: Graphs,
        inputs: PackedInputs,
        held: int,
        temperatures: Collection[float],
        chains: Sequence[OpenChain],
        steps: int,
        whole: bool,
    ) -> Launch:
        if whole and steps:
            # Only so many rows come back.
            steps = min(steps, max(1, NEEDED // (4 * self.vocabulary * len(chains))))
        with undisturbed(self.device):
            return graphs.launch(inputs, held, temperatures, chains, steps, whole)

    @property
    def reaches(self) -> tuple[Reach | None, ...]:
        """For each layer how far back it sees; None for everything."""
        return tuple(layer.reach for layer in self.layout)

    def arenas(
        self,
        rows: int = 0,
        most_rows: int | None = None,
        kind: type[CacheRows] = CacheRows,
        layout: Sequence[Layout] | None = None,
    ) -> Arenas:
        return Arenas(layout or self.layout, self.dtype, self.device, rows, most_rows, kind)

    def lend(
        self,
        rows: int,
        most_rows: int | None,
        kind: type[CacheRows],
        layout: Sequence[Layout] | None,
    ) -> Arenas:
        """Make or reuse arenas for a run, which begins here.

        Args:
            rows: rows to begin with
            most_rows: the most rows that requests may have, or None for no limit; graphs take one
                more
            kind: the kind of cache rows
            layout: the contents of the layers' caches, if they differ from the model's
        """
        graphs = isinstance(self.forward, Graphs)
        most = most_rows and most_rows + graphs
        if layout is None and (idle := self._idle.take(kind, most)):
            idle.expect(rows)
            return idle
        arenas = self.arenas(rows, most, kind, layout)
        if graphs and layout is None and arenas.simple:
            scratch = arenas.each[0].take(1)
            arenas.each[0].scratch = -1 if scratch is None else scratch.base
            with self._lending:
                self._arenas.add(arenas)
        return arenas

    def _keys_in_use(self) -> list[list[torch.Tensor]]:
        with self._lending:
            return [arenas.each[0].keys for arenas in self._arenas]

    def forget(self) -> None:
        super().forget()
        self.bytes_read.forget()
        if isinstance(self.forward, (Programs, Graphs)):
            self.forward.forget()

    def engine(self, rows: int = 0, most_rows: int | None = None) -> Passes:
        return PackedPasses(self, rows, most_rows)

    def take_back(self, arenas: Arenas) -> bool:
        """Keep arenas that no request uses any more, if useful; return whether they were kept.

        Graphs know the arenas over which they were recorded. On a CPU, making arenas takes almost
        as long as a pass of a small model.
        """
        if isinstance(graphs := self.forward, Graphs):
            if arenas.each[0].scratch < 0:
                return False
            self._idle.keep(arenas)
            graphs.prune()
            return True
        usual = arenas.most is None and arenas.layout is self.layout and arenas.size <= IDLE_BYTES
        return usual and device_of(self.device).on_host and self._idle.keep(arenas)

    def _example(self, tokens: int, wanted: int) -> tuple:
        """A pass of one request whose last tokens want logits; no two have the same tokens."""
        self._examples += 1
        tree = TokenTree(
            [(7 * i + 3 * self._examples) % min(self.own, self.vocabulary) for i in range(tokens)]
        )
        arenas = self.arenas()
        caches = arenas.take(tokens, tokens)
        assert caches is not None  # arenas without bounds have room
        feed = Feed(tree, caches[0], tree.trunk, tree.trunk[-wanted:])
        return arenas.pack([feed], {tree: caches}, self.by_request)
