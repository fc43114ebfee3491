"""A Llama twice as wide that computes the same function, so that a small one's training goes on."""

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

DOUBLED = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
NOISE = 0.3  # of a matrix's standard deviation


def grow(small: LlamaForCausalLM, seed: int = 0) -> LlamaForCausalLM:
    """A float32 model of twice the width and heads, with the logits of `small` up to rounding.

    Its embeddings are tied. Every activation is held twice. A matrix W has W / 2 in its four
    blocks, plus noise in the left and minus that noise in the right ones: it cancels while both
    halves of the activation agree, and lets training tell them apart. RMSNorm sees the same mean
    square; the last norm is halved, because tied embeddings add the halves up.

    Args:
        small: the model to grow
        seed: of the noise

    Source:
        Samragh et al. 2024, "Scaling Smart" (arXiv 2409.12903)
    """
    generator = torch.Generator().manual_seed(seed)
    settings = small.config.to_dict()
    large = LlamaForCausalLM(
        LlamaConfig(**settings | {name: 2 * settings[name] for name in DOUBLED})
    )

    def twice(name: str, weight: Tensor) -> Tensor:
        if name in ("model.embed_tokens.weight", "lm_head.weight"):
            return weight.repeat(1, 2)
        if weight.ndim == 1:
            return weight.repeat(2) / (2 if name == "model.norm.weight" else 1)
        rows, columns = weight.shape
        noise = torch.randn(2 * rows, columns, generator=generator) * NOISE * weight.std()
        half = weight.repeat(2, 1) / 2
        return torch.cat([half + noise, half - noise], 1)

    large.load_state_dict(
        {name: twice(name, weight.float()) for name, weight in small.state_dict().items()}
    )
    return large
