"""A server that looks like vLLM and draws from a model."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

import decoders
from decoders import ModelPair
from tests.workbench.engines.served import Answers, Call, Reply, a_json, chunk, usage, vllm

Ids = list[int]
Writer = Callable[[Ids, int, int], list[Ids]]  # a prompt, texts after it, tokens of each


def drawing(model: PreTrainedModel, temperature: float = 1.0) -> Writer:
    """Draws one token after another, without this project's engine."""

    @torch.inference_mode()
    def write(prompt: Ids, texts: int, tokens: int) -> list[Ids]:
        source = torch.Generator().manual_seed(len(prompt))
        found = torch.tensor([prompt] * texts)
        for _ in range(tokens):
            law = (model(found).logits[:, -1].double() / temperature).softmax(-1)
            found = torch.cat([found, law.multinomial(1, generator=source)], dim=-1)
        return found[:, len(prompt) :].tolist()

    return write


def serving(
    pair: ModelPair, write: Writer, prefixes: Sequence[str], draws: int, tokens: int
) -> Answers:
    """A server of the pair. Its draws are made in advance, as the canary will ask for them: the
    seeds from 0 on, after each prefix in turn."""
    prompts = [list(pair.tokenizer(prefix).input_ids) for prefix in prefixes]
    each = -(-draws // len(prompts))
    written = [write(prompt, each, tokens) for prompt in prompts]
    texts = [text for turn in zip(*written, strict=True) for text in turn]
    greedy = {
        tuple(prompt): decoders.generate(pair, prompt, "greedy", max_new_tokens=32).tokens
        for prompt in prompts
    }

    def answer(call: Call) -> Reply:
        body: dict[str, Any] = call.body
        if body["prompt"] == "Once upon a time":  # the probe
            ids = [1] * body["max_tokens"]
        elif body["temperature"] == 0:
            ids = greedy[tuple(body["prompt"])]
        else:
            assert body["prompt"] == prompts[body["seed"] % len(prompts)]
            ids = texts[body["seed"]]
        return a_json(chunk("x", ids, finish_reason="length") | {"usage": usage(len(ids))["usage"]})

    return vllm(answer)
