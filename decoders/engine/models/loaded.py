"""The base of all prepared models (Loaded): the caller's weights, and a twin that runs passes."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from decoders.devices import device_of
from decoders.engine.answer import Layers
from decoders.engine.weights.linear import copied_bytes
from decoders.engine.weights.quantization import stored_bytes
from decoders.engine.weights.twin import refuse_changes
from decoders.errors import InputError, first_line


class Loaded:
    """A model of the caller's that has been prepared for passes.

    Attributes:
        model: the caller's model
        own: the size of its vocabulary
        vocabulary: the size of the vocabulary that it answers for
        name: its name in messages
        reads: see `Passes`
    """

    model: PreTrainedModel
    own: int
    vocabulary: int
    name: str
    reads: Layers = ()
    _twin: PreTrainedModel
    _states: int = 0  # the number of its hidden states, once known

    @property
    def copied_bytes(self) -> int:
        """Bytes of the copies of weights that its linear layers have made so far."""
        return copied_bytes(self._twin)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    def over_vocabulary(self, logits: Tensor) -> Tensor:
        """Cut or pad the model's own logits (..., own) to the vocabulary of the pair: (..., V)."""
        missing = self.vocabulary - self.own
        return (
            logits[..., : self.vocabulary]
            if missing <= 0
            else pad(logits, (0, missing), value=-math.inf)
        )

    def refuse_changes(self) -> None:
        """Raise InputError if modules of the caller's model are not those that were tested."""
        refuse_changes(self.model, self._twin, self.name)

    def refuse_features(self, layers: Layers) -> None:
        """Raise InputError unless the model returns the hidden states of these layers."""
        if not self._states:
            ids = torch.zeros(1, 2, dtype=torch.long, device=self.device)
            try:
                with torch.inference_mode():
                    states = self.model(
                        input_ids=ids, use_cache=False, output_hidden_states=True
                    ).hidden_states
                self._states = len(states)
                if any(state.shape[:2] != ids.shape for state in states):
                    raise ValueError("they are not one row a token")
            # The model's code can fail in any way on arguments that it does not expect.
            except Exception as error:
                raise InputError(
                    f"The {self.name} does not give its hidden states ({first_line(error)}); "
                    "take a draft that reads text alone."
                ) from None
        if strange := [layer for layer in layers if not -self._states <= layer < self._states]:
            raise InputError(
                f"The {self.name} has hidden states 0 to {self._states - 1}, and {strange[0]} was "
                "asked for; name others."
            )


def refuse_unloaded(model: PreTrainedModel, name: str) -> None:
    """Raise InputError unless this is a causal language model, all of whose weights can compute.

    Weights that are offloaded or on the meta device cannot.
    """
    if model.config.is_encoder_decoder:
        raise InputError(f"The {name} is an encoder-decoder model; load a causal language model.")
    if model.device.type == "meta":
        raise InputError(
            f"The {name} has no weights (it is on the meta device); load it with its weights."
        )
    spread = getattr(model, "hf_device_map", None) or {}  # set by the package accelerate
    places = set(map(str, spread.values()))
    if len(places) > 1 and (offloaded := sorted(places & {"cpu", "disk"})):
        raise InputError(
            f"The {name} has weights offloaded to {' and '.join(offloaded)}, which every pass "
            "would fetch; load it where there is room for all of them, or quantised."
        )


def weight_bytes(model: PreTrainedModel) -> int:
    """Bytes of the weights that one pass reads.

    These are all but the embedding tables, of which it reads only some rows.

    Args:
        model: the caller's model
    """
    tables = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]
    head: Any = model.get_output_embeddings()
    looked_up = {id(t) for t in tables if head is None or t is not head.weight}
    return sum(stored_bytes(p) for p in model.parameters() if id(p) not in looked_up)


def undisturbed(device: torch.device) -> AbstractContextManager[None]:
    """A context for forward passes, without gradients, with memory on this device.

    A pass runs in the model's own dtype even if the caller has `torch.autocast` on.

    Args:
        device: the device where the pass begins
    """
    quiet = (
        torch.is_inference_mode_enabled()
        and device_of(device).on_host
        and not torch.is_autocast_enabled("cpu")
    )
    return nullcontext() if quiet else _undisturbed(device)


@contextmanager
def _undisturbed(device: torch.device) -> Iterator[None]:
    casting = torch.is_autocast_enabled(device.type)
    with (
        device_of(device).current(),
        torch.inference_mode(),
        torch.autocast(device.type, enabled=False) if casting else nullcontext(),
    ):
        yield
