"""Whether a head fits its target (refuse_misfits)."""

import re
from typing import Any

import torch
from transformers import PreTrainedModel

from decoders.engine.heads.module import HeadSpec
from decoders.engine.loading.head_files import Weights
from decoders.errors import refuse

NORMS = "embedding_norm.weight", "state_norm.weight"


def refuse_misfits(name: str, spec: HeadSpec, weights: Weights, target: PreTrainedModel) -> None:
    """Raise InputError unless a head's weights fit each other and the target.

    Args:
        name: the head's folder or hub id, for messages
        spec: what it is
        weights: its weights, with the target's where it has none of its own
        target: the target
    """
    config: Any = target.config.get_text_config()
    width, own = config.hidden_size, spec.config.hidden_size
    other = "take a head made for this target"
    embedded, proposed = weights["embed_tokens.weight"], weights["lm_head.weight"]
    reads = len(spec.reads) * width
    fc = weights.get("fc.weight")
    norms = [weights[key] for key in weights if re.match(r"fc_norm\.\d+\.weight", key)]
    joined = weights.get("input_norm.weight")
    expected = 2 * own if spec.kind == "EAGLE" else reads
    d2t = weights.get("d2t")
    refuse(
        (
            spec.config.num_hidden_layers < 1,
            f"The head {name} has no layer; download it again.",
        ),
        (
            spec.kind == "EAGLE" and "mix.weight" not in weights and own != width,
            f"The head {name} reads states of width {own}, and the target's have {width}; {other}.",
        ),
        (
            fc is not None and fc.shape[1] != expected,
            f"The head {name} reads {0 if fc is None else fc.shape[1]} numbers of a token, and the "
            f"target's states have {reads}; {other}.",
        ),
        (
            len(norms) not in (0, len(spec.reads))
            or any(norm.shape != (width,) for norm in norms)
            or (joined is not None and joined.shape != (reads,)),
            f"The head {name} norms the target's states in other numbers or widths than it reads "
            f"({len(spec.reads)} of width {width}); {other}.",
        ),
        (
            "mix.weight" in weights and weights["mix.weight"].shape != (own, reads),
            f"The head {name} mixes states of other widths than the target's {len(spec.reads)} of "
            f"width {width}; {other}.",
        ),
        (
            any(weights[key].shape != (own,) for key in NORMS if key in weights),
            f"The head {name} norms embeddings or states of another width than its own {own}; "
            "download it again.",
        ),
        (
            fc is None and reads != own,
            f"The head {name} has no weights for fc.weight, which joins the target's states; "
            "download it again.",
        ),
        (
            embedded.shape != (config.vocab_size, own),
            f"The head {name} embeds {embedded.shape[0]} tokens in width {embedded.shape[1]}, and "
            f"{config.vocab_size} in width {own} are needed; {other}.",
        ),
        (
            proposed.shape[1] != own,
            f"The head {name} has no output layer of its own, and the target's has another width; "
            "download it again.",
        ),
        (
            d2t is None and proposed.shape[0] != config.vocab_size,
            f"The head {name} proposes {proposed.shape[0]} tokens and does not say which (d2t); "
            f"{other}.",
        ),
        (
            d2t is not None and not _within(d2t, proposed.shape[0], config.vocab_size),
            f"The head {name} proposes tokens that the target does not have; {other}.",
        ),
    )


def _within(d2t: torch.Tensor, proposed: int, vocabulary: int) -> bool:
    if d2t.shape != (proposed,) or d2t.is_floating_point():
        return False
    ids = d2t + torch.arange(proposed)
    return bool((ids >= 0).all() and (ids < vocabulary).all())
