"""Decoders inside of transformers' `generate`, beside its own assisted decoding.

    python -m tests.speed.generate [--prompts 6] [--tokens 64] [--rounds 3]

On the embedded pair. All run interleaved in one process; a figure is the median over rounds, a
ratio the median of the rounds' ratios with the least and the most. Prints Markdown."""

import argparse
import statistics

import torch

import decoders
from tests.speed.engine import interleaved, times_as_fast
from workbench.studies.prompts import built_in


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("prompts", 6), ("tokens", 64), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    pair = decoders.load_pair()
    tokenizer = pair.tokenizer
    prompts = [
        tokenizer(p.text, return_tensors="pt")
        for p in built_in("stories").first(args.prompts).prompts
    ]
    tokenizer.pad_token, tokenizer.padding_side = tokenizer.eos_token, "left"
    batch = tokenizer(
        [p.text for p in built_in("stories").first(args.prompts).prompts],
        return_tensors="pt",
        padding=True,
    )
    options = {
        "max_new_tokens": args.tokens,
        "do_sample": False,
        "eos_token_id": None,
        "pad_token_id": tokenizer.pad_token_id,
    }

    def each(**more):
        return lambda: [pair.target.generate(**given, **options, **more) for given in prompts]

    speculative = decoders.hf("speculative", draft=pair.draft)
    runs = {
        "generate": each(),
        "generate, assisted": each(assistant_model=pair.draft),
        "generate, prompt lookup": each(prompt_lookup_num_tokens=7),
        "hf(greedy)": each(custom_generate=decoders.hf("greedy")),
        "hf(speculative)": each(custom_generate=speculative),
        "hf(mtad)": each(custom_generate=decoders.hf("mtad", draft=pair.draft)),
        "hf(lookup)": each(custom_generate=decoders.hf("lookup")),
        "hf(speculative), one batch": lambda: pair.target.generate(
            **batch, **options, custom_generate=speculative
        ),
    }
    alone = [pair.target.generate(**given, **options) for given in prompts]
    for name in ("generate, assisted", "hf(greedy)", "hf(speculative)", "hf(lookup)"):
        same = sum(torch.equal(a, b) for a, b in zip(alone, runs[name](), strict=True))
        print(f"{name}: the tokens of `generate` for {same} of {len(alone)} prompts")
    took = interleaved(runs, args.rounds)
    print(
        f"\n{args.prompts} prompts, {args.tokens} tokens each, T=0, {torch.get_num_threads()} "
        "threads\n"
    )
    print("| | tokens/s | × generate | × its assisted decoding |\n|---|---|---|---|")
    for name, seconds in took.items():
        speed = args.prompts * args.tokens / statistics.median(seconds)
        ratios = [times_as_fast(took, name, other) for other in ("generate", "generate, assisted")]
        print(f"| {name} | {speed:.0f} | {ratios[0]} | {ratios[1]} |")


if __name__ == "__main__":
    main()
