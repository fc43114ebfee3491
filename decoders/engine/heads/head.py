"""A head on the target's states as the draft of a pair (Head), and its passes (HeadPasses)."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from decoders.devices import device_of
from decoders.distribution import Tops
from decoders.engine.attention import interface
from decoders.engine.cache import CacheRows
from decoders.engine.fingerprint import Fingerprint
from decoders.engine.kernels.loading import scan_for
from decoders.engine.lowering.program import Pass, Programs
from decoders.engine.models.loaded import undisturbed
from decoders.engine.models.packed import way_of
from decoders.engine.pack import Arenas, Caches, Feed, PackedInputs, missing_ancestors
from decoders.engine.passes import ALL, call, length
from decoders.engine.protocols import (
    Answer,
    Features,
    Launch,
    Layers,
    OpenChain,
    Passes,
    Wants,
    comparable,
)
from decoders.engine.weights import COPIED_BYTES, BytesRead, PassLinear, forget_copies
from decoders.errors import InputError
from decoders.process import one_thread
from decoders.shapes import NodeId
from decoders.tree import TokenTree


class HeadRows(CacheRows):
    """Rows of a head: that of a node is made of its token and of the state at the node before it.

    So the first node has no row. What a head has made of its own states is dropped when a round
    ends, also for tokens that were kept: their rows are made again of the target's states.

    Args:
        base: the first arena row
        capacity: the number of arena rows

    Attributes:
        true: the nodes whose rows are made of the target's states
    """

    def __init__(self, base: int, capacity: int):
        super().__init__(base, capacity)
        self.first = 1
        self.true: set[NodeId] = set()

    def sync(self, tree: TokenTree) -> None:
        """Drop every row after the first that is not of the trunk or not made of a true state."""
        while self.settled < len(self.nodes) and self.lasts(self.nodes[self.settled], tree):
            self.settled += 1
        self.cut(self.settled)
        self.true = set()  # of later rows; of earlier ones `settled` says it
        self._lengthen_trunk(tree)

    def forget(self, nodes: Iterable[NodeId]) -> None:
        """Drop the rows of these nodes, whose logits are wanted again, and all after the first."""
        self.cut(min((self.row[node] for node in nodes if node in self.row), default=len(self)))

    def lasts(self, node: NodeId, tree: TokenTree) -> bool:
        return node in self.true and super().lasts(node, tree)


@dataclass(eq=False)
class Known:
    """What a head knows about a request.

    Attributes:
        caches: its cache rows, in one arena
        rows: these rows
        true: states made of the target's, (W,) at each node that the target has seen and that may
            still be followed by a token without a row
        own: the head's own states, (W,) at each node that has a row made in this round
        ahead: those at the tokens of a chain that the last call has fed, (tokens, W)
    """

    caches: Caches
    rows: HeadRows
    true: dict[NodeId, torch.Tensor] = field(default_factory=dict)
    own: dict[NodeId, torch.Tensor] = field(default_factory=dict)
    ahead: Sequence[torch.Tensor] = ()
    _commits: int = 0

    def settle(self, tree: TokenTree) -> None:
        """Forget what belongs to refused tokens, and all of the head's own states."""
        if self._commits == tree.commits:
            return
        self._commits = tree.commits
        self.rows.sync(tree)
        self.own.clear()
        # The last token with a row is followed by tokens without one, and may itself be asked about
        # again.
        begin = max(0, self.rows.settled + self.rows.first - 2)
        live = {*tree.trunk[begin:], *tree.tail}
        self.true = {node: state for node, state in self.true.items() if node in live}


@dataclass
class Waiting:
    """A request in a run: the nodes that have no row yet, and those that want logits.

    Attributes:
        tree: its tree
        known: what the head knows about it
        missing: nodes without a row, parents first
        entering: the states that the next rows are made of
        wanted: nodes that want logits
        logits: those found so far, (R,) by node
        passes: the passes that it took part in
        read: the bytes of weights that they read
    """

    tree: TokenTree
    known: Known
    missing: list[NodeId]
    wanted: list[NodeId]
    entering: Sequence[torch.Tensor] = ()
    logits: dict[NodeId, torch.Tensor] = field(default_factory=dict)
    passes: int = 0
    read: int = 0


class HeadPasses(Passes):
    """The passes of a head in one run.

    A row is made of a token and the state before it: the target's where the target has been, else
    the head's own. A node below one whose state is not known yet waits for the next pass.

    Args:
        model: the head (`decoders.engine.heads.head.Head`)
        rows: cache rows that the requests are expected to need together
        most_rows: the most cache rows that they may have, or None for no limit
    """

    def __init__(self, model: Any, rows: int = 0, most_rows: int | None = None):
        self.model, self.reads = model, model.reads
        self.arenas = model.arenas(rows, most_rows)
        self._known: dict[TokenTree, Known] = {}

    def admit(self, tree: TokenTree, rows: int) -> bool:
        caches = self.arenas.take(rows, tree.prompt_length)
        if caches is not None:
            self._known[tree] = Known(caches, cast(HeadRows, caches[0]))
        return caches is not None

    def release(self, tree: TokenTree) -> None:
        if (known := self._known.pop(tree, None)) is not None:
            self.arenas.give_back(known.caches)

    def rows_of(self, tree: TokenTree) -> int:
        return len(self._known[tree].rows)

    def learn(self, tree: TokenTree, features: Features) -> None:
        states = self.model.entering(features.states)
        self._known[tree].true.update(zip(features.nodes, states, strict=True))

    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        return self.read(wants, 0)

    @torch.inference_mode()
    def read(
        self,
        wants: Wants,
        sought: int,
        chains: Sequence[OpenChain] = (),
        chunk: int | None = None,
        held: int = 1,
        temperatures: Collection[float] = (),
        whole: bool = False,
    ) -> list[Answer]:
        waiting = [self._waiting(tree, nodes) for tree, nodes in wants]
        while missing := [each for each in waiting if each.missing]:
            feeds = self._feeds(missing)
            caches = {each.tree: each.known.caches for each in missing}
            inputs = self.arenas.pack(feeds, caches, self.model.by_request)
            states = torch.stack([state for each in missing for state in each.entering])
            if chains and len(missing) == len(waiting):
                launch = self.model.draw(feeds, inputs, states, sought, chains)
                if launch is not None:
                    return self._drawn(missing, feeds, launch)
            self._pass(missing, feeds, inputs, states)
        rows = [each.logits[node] for each in waiting for node in each.wanted]
        own = torch.stack(rows) if rows else torch.empty(0, self.model.proposes)
        tops = self.model.look_through(own, sought) if sought and rows else None
        together = self.model.over_vocabulary(own)
        answers, start = [], 0
        for each in waiting:
            part = slice(start, start := start + len(each.wanted))
            answers.append(
                Answer(
                    together,
                    part,
                    self._bytes(each.known),
                    each.read,
                    passes=each.passes,
                    tops=tops,
                )
            )
        return answers

    def _waiting(self, tree: TokenTree, nodes: Sequence[NodeId]) -> Waiting:
        known = self._known[tree]
        known.settle(tree)
        known.rows.forget(nodes)
        # Before the first token there is no state, and after a prompt of one token none is known at
        # first. Any proposal is valid there.
        unknown = not known.true and not known.rows
        blank = [node for node in nodes if unknown or tree.parents[node] < 0]
        dtype = torch.promote_types(self.model.dtype, torch.float32)
        nothing = torch.zeros(self.model.proposes, dtype=dtype, device=self.model.device)
        return Waiting(
            tree,
            known,
            [n for n in missing_ancestors(tree, known.rows, nodes) if tree.parents[n] >= 0]
            if not unknown
            else [],
            list(nodes),
            logits=dict.fromkeys(blank, nothing),
        )

    def _feeds(self, waiting: Sequence[Waiting]) -> list[Feed]:
        """What each request feeds: every node whose state is known."""
        feeds: list[Feed] = []
        for each in waiting:
            parents, known = each.tree.parents, each.known
            states = known.own | known.true
            ready = [node for node in each.missing if parents[node] in states]
            assert ready, "a head was asked about a text that the target has not read"
            each.entering = [states[parents[node]] for node in ready]
            wanted = [node for node in ready if node in each.wanted]
            feeds.append(Feed(each.tree, known.rows, ready, wanted))
            known.rows.true.update(node for node in ready if parents[node] in known.true)
        return feeds

    def _pass(
        self,
        waiting: Sequence[Waiting],
        feeds: Sequence[Feed],
        inputs: PackedInputs,
        states: torch.Tensor,
    ) -> None:
        logits, own = self.model(inputs, states)
        fed = answered = 0
        for each, feed in zip(waiting, feeds, strict=True):
            count = len(feed.nodes)
            each.known.own.update(zip(feed.nodes, own[fed : fed + count], strict=True))
            rows = logits[answered : answered + len(feed.wanted)]
            each.logits.update(zip(feed.wanted, rows, strict=True))
            fed, answered = fed + count, answered + len(feed.wanted)
            done = set(feed.nodes)
            each.missing = [node for node in each.missing if node not in done]
            each.passes += 1
            each.read += self.model.bytes_read(inputs.input_ids.numel())

    def _drawn(
        self, waiting: Sequence[Waiting], feeds: Sequence[Feed], launch: Launch
    ) -> list[Answer]:
        assert launch.states is not None
        assert launch.tops is not None
        rows = self.model.over_vocabulary(torch.as_tensor(launch.rows))
        tops = self.model.named(launch.tops)
        own = torch.from_numpy(launch.states).to(self.model.dtype)
        passes, requests = launch.tokens.shape
        total = sum(len(feed.nodes) for feed in feeds)
        read = self.model.bytes_read(total) + (passes - 1) * self.model.bytes_read(requests)
        answers, fed = [], 0
        for place, (each, feed) in enumerate(zip(waiting, feeds, strict=True)):
            states = own[fed : (fed := fed + len(feed.nodes))]
            each.known.own.update(zip(feed.nodes, states, strict=True))
            each.known.ahead = own[total + place :: requests].unbind()
            answers.append(
                Answer(
                    rows,
                    slice(place, None, requests),
                    self._bytes(each.known),
                    read,
                    passes=passes,
                    tokens=launch.tokens[:, place].tolist(),
                    tops=tops,
                )
            )
        return answers

    def _bytes(self, known: Known) -> int:
        return self.arenas.bytes(known.caches) + len(known.true) * self.model.state_bytes

    def grow(self, tree: TokenTree, nodes: Sequence[NodeId]) -> None:
        if nodes:
            known = self._known[tree]
            known.rows.append(tree, nodes)
            known.own.update(zip(nodes, known.ahead, strict=False))


class Head:
    """A draft that reads the target's hidden states.

    Args:
        name: its folder or hub id, for messages
        module: its layers (`HeadModule` or `MtpLayers`), on the target's device and in its dtype
        target: the model whose states it reads
        ids: the target's token of each token that it proposes; None if they are all of them
        passes: "program", which small heads on a CPU have, or "plain"

    Attributes:
        forward: a pass: `plain`, or whatever gives the same in less time
        source: its folder or hub id
        kind: what it is, for people
        reads: the target's layers whose states it reads
        state_bytes: bytes of the state of a token
        made_for: the target's width, dtype and device
        by_request: whether attention takes one request after another
        reaches: how far back each layer sees: None, everything
        proposes: R, how many tokens it proposes
    """

    packed, why, spread = True, "", False

    def __init__(
        self,
        name: str,
        module: Any,
        target: PreTrainedModel,
        ids: torch.Tensor | None = None,
        passes: str = "program",
    ):
        self.source, self.name = name, f"draft head {name}"
        self.kind, self.reads, self.positions = module.kind, module.reads, module.positions
        self.module = module
        self.ids = None if ids is None else ids.to(target.device)
        self.vocabulary: int = target.config.get_text_config().vocab_size
        self.proposes = self.vocabulary if ids is None else len(ids)
        # Of equals the lower id comes first in both numberings.
        self._rising = ids is None or bool((ids.diff() > 0).all())
        self.device, self.dtype = target.device, target.dtype
        self.by_request = not interface.takes_kernels(self.device, self.dtype)
        self.layout = module.layout(self.device)
        self.reaches = (None,) * len(self.layout)
        # A token's state is kept until its row is made of it.
        self.state_bytes = module.width * self.dtype.itemsize
        self.row_bytes = sum(self.arenas().row_bytes) + self.state_bytes
        self.made_for = made_for(target)
        shared = {weight.data_ptr() for weight in target.parameters()}
        self._own = [w for w in self.module.parameters() if w.data_ptr() not in shared]
        tables = {id(m.weight) for m in self.module.modules() if isinstance(m, nn.Embedding)}
        self.weight_bytes = sum(
            weight.nbytes for weight in self.module.parameters() if id(weight) not in tables
        )
        self.bytes_read = BytesRead(self.module, self.dtype, self.weight_bytes)
        self._fingerprint = Fingerprint(module)
        self._examples = 0
        self.forward: Pass = self.plain
        small = device_of(self.device).on_host and self.weight_bytes <= COPIED_BYTES
        if passes == "program" and small:
            self.forward = Programs(
                self.plain, self._example, self.name, self.positions, {"states": module.width}
            )

    def parameters(self) -> Iterator[torch.Tensor]:
        """Its own weights, without those that are the target's."""
        return iter(self._own)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.module.state_dict()

    @property
    def engine_name(self) -> str:
        return way_of(self.forward)

    @property
    def copied_bytes(self) -> int:
        return sum(m.copied_bytes for m in self.module.modules() if isinstance(m, PassLinear))

    def entering(self, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """The states that rows are made of, (n, W), given those of the target, each (n, H)."""
        with undisturbed(self.device):
            entry = self.module.entering([state.to(self.device) for state in states])
        # A view would keep the states of the whole pass.
        return entry.clone() if any(entry is state for state in states) else entry

    def __call__(
        self, inputs: PackedInputs, states: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one pass.

        Args:
            inputs: the tensors of the pass
            states: the state before each token, (tokens, W)

        Returns:
            logits (n, R) of the R tokens that it proposes, float32 or float64, and the state at
                each token (tokens, W)
        """
        with undisturbed(self.device):
            logits, own = self.forward(
                input_ids=inputs.input_ids,
                position_ids=inputs.position_ids - self.module.earlier,
                wanted=inputs.wanted,
                packing=inputs.packing,
                states=states[None],
            )
        return comparable(logits), own

    def draw(
        self,
        feeds: Sequence[Feed],
        inputs: PackedInputs,
        states: torch.Tensor,
        sought: int,
        chains: Sequence[OpenChain],
    ) -> Launch | None:
        """Make a pass and draw chains after it, see `decoders.engine.passes.call`.

        Returns:
            None if one call cannot do that
        """
        longest = max(len(feed.nodes) for feed in feeds)
        program = self.forward.serving(longest) if isinstance(self.forward, Programs) else None
        more = any(feed.wanted != feed.nodes[-1:] for feed in feeds)
        size = self.weight_bytes * 4 // self.dtype.itemsize
        if program is None or not self._rising or more or not length(size, feeds, inputs, chains):
            return None
        inputs = inputs._replace(position_ids=inputs.position_ids - self.module.earlier)
        ids = ALL if self.ids is None else self.ids.numpy()
        with undisturbed(self.device):
            entering = states.float().numpy()
            return call(program, size, feeds, inputs, sought, chains, entering, ids)

    def over_vocabulary(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits (n, V), given those of the tokens that it proposes (n, R)."""
        if self.ids is None:
            return logits
        with one_thread():
            every = logits.new_full((len(logits), self.vocabulary), -math.inf)
            every[:, self.ids] = logits
        return every

    def look_through(self, logits: torch.Tensor, sought: int) -> Tops | None:
        """What is read of logits (n, R), which are fewer than V; None if it is read of those.

        Args:
            logits: the logits
            sought: how many of the likeliest tokens are looked for in each row
        """
        if not self._rising or not device_of(logits.device).on_host:
            return None
        rows, scan = logits.numpy(), scan_for(logits)
        tops, places = scan.likeliest(rows, min(sought, rows.shape[1]))
        excesses = {1.0: scan.excesses(rows, tops[:, 0].astype(np.float64), 1.0)}
        return self.named(Tops(tops, places, excesses))

    def named(self, tops: Tops) -> Tops:
        """What was read of logits (n, R), with the target's ids."""
        ids = tops.ids if self.ids is None else self.ids.numpy()[tops.ids]
        return Tops(tops.logits, ids, tops.excesses)

    def plain(self, features: Layers = (), **inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """A pass through the modules; a head gives no hidden states beside its own."""
        return self.module(**inputs)

    def _example(self, tokens: int, wanted: int) -> tuple:
        self._examples += 1
        tree = TokenTree(
            [(7 * i + 3 * self._examples) % self.vocabulary for i in range(tokens + 1)]
        )
        arenas = self.arenas()
        caches = arenas.take(tokens, tokens)
        assert caches is not None  # arenas without bounds have room
        feed = Feed(tree, caches[0], tree.trunk[1:], tree.trunk[-wanted:])
        inputs = arenas.pack([feed], {tree: caches}, self.by_request)
        generator = torch.Generator().manual_seed(self._examples)
        states = torch.randn(1, tokens, self.module.width, generator=generator)
        places = inputs.position_ids - self.module.earlier
        states = states.to(self.device, self.dtype)
        return inputs.input_ids, places, inputs.wanted, inputs.packing, states

    def arenas(self, rows: int = 0, most_rows: int | None = None) -> Arenas:
        return Arenas(self.layout, self.dtype, self.device, rows, most_rows, HeadRows)

    def engine(self, rows: int = 0, most_rows: int | None = None) -> Passes:
        return HeadPasses(self, rows, most_rows)

    def follow(self) -> bool:
        """Take up other weights, its own or the target's."""
        if self._fingerprint.change():
            self.forget()
            self._fingerprint = Fingerprint(self.module)
        return True

    def forget(self) -> None:
        forget_copies(self.module)
        self.bytes_read.forget()
        if isinstance(self.forward, Programs):
            self.forward.forget()

    def refuse_features(self, layers: Layers) -> None:
        raise InputError(f"The {self.name} has no hidden states for others to read.")


def made_for(target: PreTrainedModel) -> tuple[int, torch.dtype, torch.device]:
    """What a head and its target share: the width of the states, their dtype and device."""
    return target.config.get_text_config().hidden_size, target.dtype, target.device
