"""The layer for multi-token prediction that a target brings along, as a head (MtpLayers)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from decoders.engine.attention import interface
from decoders.engine.memory.rows import Layout
from decoders.engine.models import probe
from decoders.engine.models.loaded import positions_of
from decoders.engine.protocols import Layers


class MtpLayers(nn.Module):
    """The first of a target's layers for multi-token prediction, at every place of a draft.

    It reads the state after the final norm. Further layers, one for each place of a draft, are left
    out: the first one reads its own state again, as the heads of EAGLE do.

    Args:
        model: the layers as transformers loads them (`MtpModel`); embeddings and the output layer
            are the target's
        target: the target

    Attributes:
        earlier: 0, for the pair (token t + 1, state t) has position t + 1 (transformers,
            generation/candidate_generator.py, `MTPCandidateGenerator`)

    Raises:
        NotPackedError: if packed attention does not model the layer's attention

    Source:
        DeepSeek-V3 (arXiv 2412.19437), section 2.2
    """

    kind, earlier = "MTP head", 0
    reads: Layers = (-1,)

    def __init__(self, model: Any, target: PreTrainedModel):
        super().__init__()
        # Embeddings, output layer and rotary frequencies are modules of the caller's target: they
        # stay as they are, so only the others are moved.
        for part in (model.layers, getattr(model, "shared_post_norm", None)):
            if part is not None:
                part.to(target.device, target.dtype).eval().requires_grad_(False)
        self.model = model
        self.width: int = model.config.hidden_size
        self.positions = positions_of(model.config)
        self._layout = self._probed(target)
        model.config._attn_implementation = interface.NAME

    def _probed(self, target: PreTrainedModel) -> list[Layout]:
        self.model.config._attn_implementation = probe.NAME
        noted = probe.Probe(self.positions)
        ids = torch.zeros(1, 2, dtype=torch.long, device=target.device)
        states = torch.zeros(1, 2, self.width, dtype=target.dtype, device=target.device)
        with torch.inference_mode():
            self._through(ids, ids, states, noted)
        return [noted.layers[0]]

    def layout(self, device: torch.device) -> list[Layout]:
        return self._layout

    def entering(self, states: Sequence[torch.Tensor]) -> torch.Tensor:
        return states[0]

    def _through(
        self, ids: torch.Tensor, positions: torch.Tensor, states: torch.Tensor, packing: Any
    ) -> torch.Tensor:
        embedded = self.model.embed_tokens(ids)
        turns = self.model.rotary_emb and self.model.rotary_emb(embedded, position_ids=positions)
        state = self.model.layers[0](
            embedded,
            states,
            position_embeddings=turns,
            attention_mask=None,
            position_ids=positions,
            cache=None,
            packing=packing,
        )
        return self.model.shared_post_norm(state) if self.model.use_shared_post_norm else state

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        wanted: torch.Tensor,
        packing: Any,
        states: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one pass, see `decoders.engine.heads.module.HeadModule`."""
        state = self._through(input_ids, position_ids, states, packing)
        return self.model._project_to_logits(state[:, wanted, :])[0], state[0]
