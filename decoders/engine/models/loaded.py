"""The base of all prepared models (Loaded): the caller's weights, and a twin that runs passes."""

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import PreTrainedConfig, PreTrainedModel

from decoders.devices import device_of
from decoders.engine.fingerprint import Fingerprint
from decoders.engine.protocols import Layers
from decoders.engine.weights import PassLinear, forget_copies, stored_bytes
from decoders.errors import InputError, first_line, refuse


class Loaded:
    """A model of the caller's that has been prepared for passes.

    Args:
        model: the caller's model
        role: "target" or "draft", for messages
        vocabulary: the size of the vocabulary that it answers for; None for its own

    Attributes:
        own: the size of its vocabulary
        name: its name in messages
        positions: the most tokens that it can see, or None if its config does not say
        keeps: whether it computes the logits of chosen tokens alone
        weight_bytes: bytes of the weights that one pass reads, if it reads no copies
        reads: see `Passes`

    Raises:
        InputError: with its name, if it is not a whole causal language model
    """

    reads: Layers = ()
    _twin: PreTrainedModel
    _states: int = 0  # the number of its hidden states, once known

    def __init__(self, model: PreTrainedModel, role: str, vocabulary: int | None):
        self.model, self.device, self.dtype = model, model.device, model.dtype
        self.name = f"{role} model {model.config.name_or_path or type(model).__name__}"
        refuse_unloaded(model, self.name)
        config = model.config.get_text_config()
        self.own: int = config.vocab_size
        self.vocabulary = vocabulary or self.own
        self.positions = positions_of(config)
        self.keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        self.weight_bytes = weight_bytes(model)
        self._fingerprint = Fingerprint(model)

    @property
    def copied_bytes(self) -> int:
        return sum(m.copied_bytes for m in self._twin.modules() if isinstance(m, PassLinear))

    def over_vocabulary(self, logits: torch.Tensor) -> torch.Tensor:
        """Cut or pad the model's own logits (..., own) to the vocabulary of the pair: (..., V)."""
        missing = self.vocabulary - self.own
        return (
            logits[..., : self.vocabulary]
            if missing <= 0
            else pad(logits, (0, missing), value=-math.inf)
        )

    def follow(self) -> bool:
        """Take up other weights; return False if more has changed, which takes a new preparation.

        This is called once, when a run begins.
        """
        change = self._fingerprint.change()
        if change == "weights":
            self.forget()
            self._fingerprint = Fingerprint(self.model)
        return change != "form"

    def forget(self) -> None:
        forget_copies(self._twin)

    def refuse_features(self, layers: Layers) -> None:
        """Raise InputError unless the model returns the hidden states of these layers."""
        if not self._states:
            ids = torch.zeros(1, 2, dtype=torch.long, device=self.device)
            try:
                with torch.inference_mode():
                    states = self.model(
                        input_ids=ids, use_cache=False, output_hidden_states=True
                    ).hidden_states
                if any(state.shape[:2] != ids.shape for state in states):
                    raise ValueError("they are not one row a token")
                self._states = len(states)
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


@contextmanager
def in_eval_mode(*models: torch.nn.Module) -> Iterator[None]:
    """A context in which modules are in eval mode; afterwards each is in its own mode again."""
    training = [module for model in models for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def refuse_unloaded(model: PreTrainedModel, name: str) -> None:
    """Raise InputError unless this is a causal language model, all of whose weights can compute.

    Weights that are offloaded or on the meta device cannot.
    """
    # Set by the package accelerate.
    places = set(map(str, (getattr(model, "hf_device_map", None) or {}).values()))
    offloaded = sorted(places & {"cpu", "disk"})
    refuse(
        (
            model.config.is_encoder_decoder,
            f"The {name} is an encoder-decoder model; load a causal language model.",
        ),
        (
            model.device.type == "meta",
            f"The {name} has no weights (it is on the meta device); load it with its weights.",
        ),
        (
            len(places) > 1 and offloaded,
            f"The {name} has weights offloaded to {' and '.join(offloaded)}, which every pass "
            "would fetch; load it where there is room for all of them, or quantised.",
        ),
    )


def positions_of(config: PreTrainedConfig) -> int | None:
    """The most tokens that a model can see with positions that mean the same in every pass.

    For a pass that goes beyond `original_max_position_embeddings`, "longrope" changes the
    frequencies of all tokens, while cached keys keep theirs: tokens would depend on the rest of the
    batch. Up to that limit the model is exact.

    Args:
        config: the config of the text model

    Returns:
        None if the config does not say
    """
    limits = [getattr(config, "max_position_embeddings", None)]
    ropes = getattr(config, "rope_parameters", None) or {}
    # There is one, or one for each kind of layer.
    for rope in (ropes, *(r for r in ropes.values() if isinstance(r, dict))):
        if rope.get("rope_type") == "longrope":
            limits.append(rope["original_max_position_embeddings"])
    return min((limit for limit in limits if limit is not None), default=None)


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


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """A context for forward passes, without gradients, with memory on this device.

    A pass runs in the model's own dtype even if the caller has `torch.autocast` on.

    Args:
        device: the device where the pass begins
    """
    with (
        device_of(device).current(),
        torch.inference_mode(),
        torch.autocast(device.type, enabled=False)
        if torch.is_autocast_enabled(device.type)
        else nullcontext(),
    ):
        yield
