"""Writing a head in the format of EAGLE-3 (export)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from decoders.engine.heads.module import HeadModule


def export(module: HeadModule, proposed: np.ndarray, target: PreTrainedModel, folder: Path) -> None:
    """Write a head in the format of EAGLE-3, in bfloat16.

    Args:
        module: its layers
        proposed: the target's token of each token that it proposes, rising
        target: its target
        folder: gets config.json and model.safetensors
    """
    folder.mkdir(parents=True, exist_ok=True)
    ids = torch.from_numpy(proposed).long()
    own = module.state_dict()
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in own.items():
        if ".state." in name:
            continue
        if ".token." in name:
            tensor = torch.cat([tensor, own[name.replace(".token.", ".state.")]], 1)
            name = name.replace(".token.", ".")
        for project in ("q_proj", "k_proj", "v_proj", "o_proj"):
            name = name.replace(f"layers.0.{project}", f"layers.0.self_attn.{project}")
        weights[name] = tensor.to(torch.bfloat16).contiguous().cpu()
    size: Any = target.config.get_text_config()
    t2d = torch.zeros(size.vocab_size, dtype=torch.bool)
    t2d[ids] = True
    weights |= {"d2t": ids - torch.arange(len(ids)), "t2d": t2d}
    config = {
        **module.spec.config.to_diff_dict(),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": len(ids),
        "target_hidden_size": size.hidden_size,
        "eagle_aux_hidden_state_layer_ids": list(module.reads),
        "fc_norm": True,
        "dtype": "bfloat16",
    }
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
