"""Make a large target for the embedded draft, to measure speculative decoding where it matters.

    python -m tools.engines.enlarge .engines/large [--acceptance 0.7] [--layers 18]

The target, 130M parameters, begins with the draft's layers in a wider hidden state; random layers
follow, whose output is scaled until the draft's tokens are accepted as often as asked: by bisection
at T=0 with 3 draft tokens on 4 held-out prompts. It writes like the draft, and costs what a model
of its size costs. Weights are float16. Three minutes on a quiet machine.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
import transformers
from transformers import PretrainedConfig

import decoders
from tools.engines.places import STORIES

WIDER = 4  # times the draft's width
TRIES, LARGEST = 5, 2.0  # halvings of the scale, which is below the largest


def grown(config: PretrainedConfig, layers: int) -> PretrainedConfig:
    """The shape of the target: wider by a factor, with heads of the same size."""
    return transformers.LlamaConfig(
        **{
            **config.to_dict(),
            "hidden_size": WIDER * config.hidden_size,
            "intermediate_size": 8 * WIDER * config.hidden_size // 3,
            "num_attention_heads": WIDER * config.num_attention_heads,
            "num_key_value_heads": WIDER * config.num_key_value_heads,
            "num_hidden_layers": layers,
            # the mean of squares is over more entries, most of which are zero
            "rms_norm_eps": config.rms_norm_eps / WIDER,
        }
    )


def enlarged(draft: torch.nn.Module, layers: int, seed: int = 0) -> torch.nn.Module:
    """A target that computes what the draft computes, until `scale` turns its other layers up."""
    torch.manual_seed(seed)
    target = transformers.LlamaForCausalLM(grown(draft.config, layers)).half().float()
    own, kept = target.state_dict(), draft.config.num_hidden_layers
    with torch.no_grad():
        for name, weight in draft.state_dict().items():
            part = own[name].zero_()[tuple(map(slice, weight.shape))]
            # a norm divides by less, the root of the factor
            part.copy_(weight / WIDER**0.5 if weight.ndim == 1 else weight)
    scale(target, kept, 0.0)
    return target


def scale(target: torch.nn.Module, kept: int, factor: float) -> None:
    """Scale what all layers but the first ones add to the hidden state."""
    with torch.no_grad():
        for i, layer in enumerate(target.model.layers[kept:]):
            generator = torch.Generator().manual_seed(i)
            for weight in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
                drawn = torch.randn(weight.shape, generator=generator)
                weight.copy_((factor * 0.02 * drawn).half().float())


def acceptance(target: torch.nn.Module, draft: torch.nn.Module, prompts: list[list[int]]) -> float:
    """The share of draft tokens that are accepted."""
    pair = decoders.ModelPair(target, draft, passes="plain")
    method = decoders.catalog["speculative"](draft_length=3, confidence=0.0)
    found = decoders.generate(
        pair, prompts, method, max_new_tokens=48, temperature=0.0, ignore_eos=True
    )
    drafted = sum(result.metrics.drafted for result in found)
    return sum(result.metrics.accepted for result in found) / drafted


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--acceptance", type=float, default=0.7)
    parser.add_argument("--layers", type=int, default=18)
    args = parser.parse_args()
    read = transformers.AutoModelForCausalLM.from_pretrained
    draft = read(STORIES / "draft", dtype=torch.float32)
    target, kept = enlarged(draft, args.layers), draft.config.num_hidden_layers
    pair = decoders.load_pair()
    texts = json.loads((STORIES / "prompts.json").read_text(encoding="utf-8"))["openings"][:4]
    prompts = [list(pair.tokenizer(text).input_ids) for text in texts]
    low, high, tried = 0.0, LARGEST, {}
    for _ in range(TRIES):
        factor = (low + high) / 2
        scale(target, kept, factor)
        tried[factor] = acceptance(target, draft, prompts)
        print(f"scale {factor:.4f}: {tried[factor]:.3f} of the draft's tokens are accepted")
        low, high = (factor, high) if tried[factor] > args.acceptance else (low, factor)
    scale(target, kept, min(tried, key=lambda factor: abs(tried[factor] - args.acceptance)))
    target.half().save_pretrained(args.folder / "target")
    shutil.copytree(STORIES / "draft", args.folder / "draft", dirs_exist_ok=True)
    for file in (STORIES / "draft").glob("tokenizer*"):
        shutil.copy(file, args.folder / "target")


if __name__ == "__main__":
    main()
