"""Whether this checkout and another one give the same tokens, traces and counts for the same seeds.

    git worktree add ../old b2b7125
    python -m tests.same ../old

All decoders that both have, at three samplings, in every padding, alone and in batches, with
prompts read whole and in chunks, on a random pair in float64. Lengths that follow the clock are
fixed. Prints the calls that differ, and how many there were; about three minutes on one core.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORKER = """
import dataclasses, itertools, json, sys
import torch, transformers
import decoders

torch.set_num_threads(1)


def model(seed, layers):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        initializer_range=0.3, eos_token_id=39,
    )
    return transformers.LlamaForCausalLM(config).double().eval()


def plain(value):
    if hasattr(value, "every"):  # the trials of a round
        return plain(value.every())
    if dataclasses.is_dataclass(value):
        fields = [f.name for f in dataclasses.fields(value) if "second" not in f.name]
        return {name: plain(getattr(value, name)) for name in fields}
    if hasattr(value, "__iter__") and not isinstance(value, str):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return round(value, 9)
    return value if isinstance(value, (int, str, type(None), bool)) else repr(value)


SAMPLINGS = (
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_k": 8, "top_p": 0.9},
)
PROMPTS = [[1, 5, 9, 5, 9, 2], [3] * 12, [7, 8], list(range(1, 30))]
pair = decoders.ModelPair(model(1, 3), model(2, 1))
for name in json.loads(sys.argv[1]):
    fields = {f.name for f in dataclasses.fields(decoders.catalog[name])}
    method = decoders.catalog[name](**({"draft_length": 3} if "draft_length" in fields else {}))
    for sampling, padding, batch, chunk in itertools.product(
        SAMPLINGS, ("none", "inputs", "kv", "both"), (1, 3), (None, 4)
    ):
        if padding != "none" and (batch == 1 or chunk):
            continue
        options = {**sampling, "padding": padding, "max_batch": batch, "prefill_chunk": chunk}
        try:
            found = [
                plain((event.append, event.round, event.result))
                for event in decoders.stream(
                    pair, PROMPTS, method, seed=5, max_new_tokens=14, **options
                )
            ]
        except decoders.InputError as error:
            found = "refused"
        print(json.dumps([name, options, found]), flush=True)
"""


def calls(folder: Path, names: list[str]) -> subprocess.Popen:
    """A process that prints what each call gives with the code of this checkout."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", WORKER, json.dumps(names)]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="a folder with the other checkout")
    parser.add_argument("--decoders", nargs="+")
    args = parser.parse_args()
    from decoders import catalog

    names = args.decoders or list(catalog)
    here, there = calls(ROOT, names), calls(args.other.resolve(), names)
    count = differing = 0
    for mine, other in zip(here.stdout, there.stdout, strict=True):
        count += 1
        if mine != other:
            differing += 1
            name, options, found = json.loads(mine)
            events = zip(found, json.loads(other)[2], strict=False)
            first = next((i for i, (a, b) in enumerate(events) if a != b), "the end")
            print(f"{name} differs from event {first} on: {options}")
    failed = here.wait() or there.wait()
    print(f"{count} calls, {differing} differ{', and a checkout failed' if failed else ''}")
    return int(bool(differing or failed))


if __name__ == "__main__":
    sys.exit(main())
