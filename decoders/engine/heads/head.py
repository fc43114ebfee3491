"""A head that is ready to draft (Head), which fits `decoders.engine.protocols.Model`."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from decoders.devices import device_of
from decoders.distribution import Tops
from decoders.engine.attention import operator
from decoders.engine.heads.passes import HeadPasses, HeadRows
from decoders.engine.kernels.loading import scan_for
from decoders.engine.lowering.program import Pass, Programs
from decoders.engine.memory.arenas import Arenas
from decoders.engine.memory.feeds import Feed, PackedInputs
from decoders.engine.memory.rows import Layout
from decoders.engine.models.fingerprint import Fingerprint
from decoders.engine.models.loaded import undisturbed
from decoders.engine.protocols import Layers, Passes
from decoders.engine.weights.linear import COPIED_BYTES, BytesRead, PassLinear, forget_copies
from decoders.errors import InputError
from decoders.tree import TokenTree


class HeadLayers(Protocol):
    """The layers of a head: a torch module, with a pass as `HeadModule.forward` makes it.

    Attributes:
        kind: what it is, for people
        reads: the target's layers whose states it reads, rising, numbered as in transformers
        width: W, of the states that its rows are made of
        positions: the most tokens that it can see, or None
        earlier: how much the position of a row is below that of its token
    """

    kind: str
    reads: Layers
    width: int
    positions: int | None
    earlier: int

    def layout(self, device: torch.device) -> list[Layout]:
        """The contents of the layers' caches."""

    def entering(self, states: Sequence[torch.Tensor]) -> torch.Tensor:
        """The states that rows are made of, (n, W), given those of the target, each (n, H)."""


class Head:
    """A draft that reads the target's hidden states.

    Args:
        name: its folder or hub id, for messages
        module: its layers, on the target's device and in its dtype
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
        module: HeadLayers,
        target: PreTrainedModel,
        ids: torch.Tensor | None = None,
        passes: str = "program",
    ):
        self.source, self.name = name, f"draft head {name}"
        self.kind, self.reads, self.positions = module.kind, module.reads, module.positions
        layers: Any = module  # a torch module too
        self.module = layers
        self.ids = None if ids is None else ids.to(target.device)
        self.vocabulary: int = target.config.get_text_config().vocab_size
        self.proposes = self.vocabulary if ids is None else len(ids)
        # Of equals the lower id comes first in both numberings.
        self._rising = ids is None or bool((ids.diff() > 0).all())
        self._device, self._dtype = target.device, target.dtype
        self.by_request = not operator.takes_kernels(self._device, self._dtype)
        self.layout = module.layout(self._device)
        self.reaches = (None,) * len(self.layout)
        # A token's state is kept until its row is made of it.
        self.state_bytes = module.width * self._dtype.itemsize
        self.row_bytes = sum(self.arenas().row_bytes) + self.state_bytes
        self.made_for = made_for(target)
        shared = {weight.data_ptr() for weight in target.parameters()}
        self._own = [w for w in self.module.parameters() if w.data_ptr() not in shared]
        tables = {id(m.weight) for m in self.module.modules() if isinstance(m, nn.Embedding)}
        self.weight_bytes = sum(
            weight.nbytes for weight in self.module.parameters() if id(weight) not in tables
        )
        self.bytes_read = BytesRead(self.module, self._dtype, self.weight_bytes)
        self._fingerprint = Fingerprint(layers)
        self._examples = 0
        self.forward: Pass = self.plain
        small = device_of(self._device).on_host and self.weight_bytes <= COPIED_BYTES
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
        run = self.forward
        if isinstance(run, Programs) and not run.why:
            return "packed passes, as a program of kernels"
        why = f" ({run.why})" if isinstance(run, Programs) else ""
        return f"packed passes, module by module{why}"

    @property
    def copied_bytes(self) -> int:
        return sum(m.copied_bytes for m in self.module.modules() if isinstance(m, PassLinear))

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def entering(self, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """The states that rows are made of, (n, W), given those of the target, each (n, H)."""
        with undisturbed(self._device):
            entry = self.module.entering([state.to(self._device) for state in states])
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
        with undisturbed(self._device):
            logits, own = self.forward(
                input_ids=inputs.input_ids,
                position_ids=inputs.position_ids - self.module.earlier,
                wanted=inputs.wanted,
                packing=inputs.packing,
                states=states[None],
            )
        return logits if logits.dtype == torch.float64 else logits.float(), own

    def over_vocabulary(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits (n, V), given those of the tokens that it proposes (n, R)."""
        if self.ids is None:
            return logits
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
        return Tops(tops, places if self.ids is None else self.ids.numpy()[places], excesses)

    def plain(self, features: Layers = (), **inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """A pass through the modules; a head gives no hidden states beside its own."""
        return self.module(**inputs)

    def _example(self, tokens: int, wanted: int) -> tuple:
        """A pass of one request whose last tokens want logits; no two have the same tokens."""
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
        states = states.to(self._device, self._dtype)
        return inputs.input_ids, places, inputs.wanted, inputs.packing, states

    def no_logits(self) -> torch.Tensor:
        """Logits (R,) for a place where the head has nothing to read."""
        dtype = torch.float64 if self._dtype == torch.float64 else torch.float32
        return torch.zeros(self.proposes, dtype=dtype, device=self._device)

    def arenas(self, rows: int = 0, most_rows: int | None = None) -> Arenas:
        return Arenas(self.layout, self._dtype, self._device, rows, most_rows, HeadRows)

    def engine(self, rows: int = 0, most_rows: int | None = None) -> Passes:
        return HeadPasses(self, rows, most_rows)

    def follow(self) -> bool:
        """Take up other weights, its own or the target's."""
        if self._fingerprint.lasts():
            return True
        now = Fingerprint(self.module)
        if not (now.alike(self._fingerprint) and now.weights.alike(self._fingerprint.weights)):
            self._fingerprint = now
            self.forget()
        return True

    def forget(self) -> None:
        """Forget programs and copies of weights, which are made anew when next needed."""
        forget_copies(self.module)
        self.bytes_read.forget()
        if isinstance(self.forward, Programs):
            self.forward.forget()

    def refuse_features(self, layers: Layers) -> None:
        raise InputError(f"The {self.name} has no hidden states for others to read.")


def made_for(target: PreTrainedModel) -> tuple[int, torch.dtype, torch.device]:
    """What a head and its target share: the width of the states, their dtype and device."""
    return target.config.get_text_config().hidden_size, target.dtype, target.device
