"""`python -m decoders.selftest`: whether kernels, models, CUDA graphs and draws are right here.

Each check runs in its own process, because an illegal address on a GPU spoils the process in
which it happens. Exit code 0 means that all is well.
"""

import itertools
import platform
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, MistralConfig

from decoders import ModelPair, catalog, default_device, generate
from decoders.engine.attention import interface
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PackedPasses
from decoders.tree import TokenTree

PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 60))]
LONG = [i % 67 for i in range(1500)]
# The largest error of a model's logits, relative to their length.
ALLOWED = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}
# Heads of 16 to 256, two to eight for one of the keys, and a window.
SHAPES: tuple[dict[str, int], ...] = (
    {},
    {"head_dim": 128, "sliding_window": 33},
    {"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 1},
)


def build(dtype: torch.dtype, place: Any = None, **sizes: int) -> Any:
    """A random model, small unless `sizes` say otherwise."""
    torch.manual_seed(0)
    given: dict[str, Any] = {
        "vocab_size": 4096,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "initializer_range": 0.1,
        "sliding_window": None,
    } | sizes
    config = MistralConfig(**given, bos_token_id=None, eos_token_id=None)
    model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    for weight in model.parameters():  # as published ones are, which kernels need
        weight.data = weight.data.bfloat16().to(dtype)
    return model.to(place or default_device()).eval()


def machine() -> Iterator[str]:
    """The versions, and the GPU."""
    yield f"Python {platform.python_version()}, torch {torch.__version__}"
    yield f"transformers {transformers.__version__}"
    if torch.cuda.is_available():
        yield f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    yield f"FlashAttention: {interface.FLASH}, Triton: {interface.TRITON}"


def models() -> Iterator[str]:
    """The logits of models in each number type, compared with float64 on the CPU."""
    for dtype, allowed in ALLOWED.items():
        errors = []
        for sizes in SHAPES:
            exact = logits_of(build(dtype, "cpu", **sizes).double())
            off = logits_of(build(dtype, **sizes)) - exact
            errors.append(off.norm() / exact.norm())
        error = float(torch.stack(errors).max())
        yield f"{str(dtype)[6:]}: prompts, chains and trees, error {error:.1e}"
        if not error <= allowed:
            sys.exit(f"WRONG: in {dtype} the error should be at most {allowed:.0e}.")
    if interface.FAILED:
        names = " and ".join(str(way.__doc__).split(",")[0] for way in interface.FAILED)
        sys.exit(f"WRONG: {names} did not run.")


def logits_of(model: Any) -> torch.Tensor:
    """The logits (n, V) of passes, on the host in float64.

    The passes are of all prompts, of a chain after each, and of a tree after these.
    """
    engine = PackedPasses(PackedModel(model, "target", passes="plain"))
    trees, rows = [TokenTree(p) for p in [*PROMPTS, LONG]], []
    nodes = {tree: tree.trunk[-1:] for tree in trees}
    for tree in trees:
        engine.admit(tree, len(tree.trunk) + 16)
    for parents in ([], [0, 1, 2], [0, 0, 1, 1, 2, 2]):
        for tree in trees if parents else ():
            grown = nodes[tree][-1:]
            for token, parent in enumerate(parents):
                grown.append(tree.add(grown[parent], 7 * token))
            nodes[tree] = grown[1:]
        rows.append(torch.as_tensor(engine.run(list(nodes.items()))[0].rows).cpu().double())
    return torch.cat(rows)


def tokens() -> Iterator[str]:
    """Each decoder's draws: by programs (CUDA graphs on a GPU), by plain passes, on the CPU."""
    programs = pair_of(torch.float32)  # which kernels and graphs take
    engines = " and ".join({packed.engine_name for packed in programs.packed.values()})
    if "module by module" in engines:
        sys.exit(f"WRONG: the passes are no programs, they run as {engines}.")
    yield alike(programs, pair_of(torch.float32, passes="plain"), engines, "plain passes")
    if default_device().type != "cpu":
        there, here = (pair_of(torch.float64, place) for place in (default_device(), "cpu"))
        yield alike(there, here, str(default_device()), "the CPU")


def pair_of(dtype: torch.dtype, place: Any = None, **options: Any) -> ModelPair:
    # If the draft is the target itself, chances are equal but for rounding, which then decides.
    target, draft = (build(dtype, place, num_hidden_layers=layers) for layers in (2, 1))
    return ModelPair(target, draft, **options)


def alike(one: ModelPair, other: ModelPair, *names: str) -> str:
    options: dict[str, Any] = {"max_new_tokens": 16, "ignore_eos": True, "seed": 1}
    samplings: tuple[dict[str, Any], ...] = ({}, {"temperature": 0.7, "top_k": 20, "top_p": 0.9})
    for name, sampling in itertools.product(catalog, samplings):
        results = [generate(pair, PROMPTS, name, **options, **sampling) for pair in (one, other)]
        if [r.tokens for r in results[0]] != [r.tokens for r in results[1]]:
            sys.exit(f"WRONG: {name} gives other tokens by {names[0]} than by {names[1]}.")
    return f"{' and '.join(names)} give the same tokens: {len(catalog)} decoders"


CHECKS = {check.__name__: check for check in (machine, models, tokens)}


def run(name: str) -> int:
    for line in CHECKS[name]():
        print(f"  {line}", flush=True)
    return 0


def run_all() -> int:
    failed = []
    for name, check in CHECKS.items():
        print(f"{name}: {check.__doc__}", flush=True)
        command = [sys.executable, "-m", "decoders.selftest", name]
        if code := subprocess.run(command).returncode:
            failed.append(name)
            print(f"  FAILED ({code})", flush=True)
    print(f"Something is wrong: {', '.join(failed)}." if failed else "All is well.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]) if sys.argv[1:] else run_all())
