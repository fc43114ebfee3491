"""The result of a call of transformers' `generate`, and the state of its streamers and models."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import GenerateDecoderOnlyOutput
from transformers.generation.streamers import BaseStreamer

from decoders.result import Event, Metrics, Result
from decoders.shapes import TokenId
from decoders.trace import Round


@dataclass
class Generated(GenerateDecoderOnlyOutput):
    """The output of `generate(..., return_dict_in_generate=True)`.

    There are no scores, attentions, hidden states or caches.

    Attributes:
        sequences: token ids (rows, tokens), as always
        metrics: the metrics of each row
        rounds: the rounds of each row
        results: the whole result of each row
    """

    metrics: list[Metrics] | None = None
    rounds: list[list[Round]] | None = None
    results: list[Result] | None = None


def collect(events: Iterator[Event], streamers: Sequence[BaseStreamer]) -> list[Result]:
    """The result of each row.

    Streamers get tokens one by one, as from `generate`, and none that a later round may take back.
    """
    results: dict[int, Result] = {}
    tokens, sent = list[TokenId](), 0
    for event in events:
        if event.result is not None:
            if event.result.error is not None:
                raise event.result.error
            results[event.request] = event.result
        if streamers:
            tokens = tokens[: event.keep] + event.append
            for token in () if event.provisional else tokens[sent:]:
                streamers[0].put(torch.tensor([token]))
                sent += 1
    return [results[i] for i in range(len(results))]


@contextmanager
def ending(streamers: Sequence[BaseStreamer]) -> Iterator[None]:
    """Tell streamers the end, however the call ends: a listener would wait for ever otherwise."""
    try:
        yield
    finally:
        for streamer in streamers:
            streamer.end()


@contextmanager
def evaluating(*models: PreTrainedModel | None) -> Iterator[None]:
    """Models in eval mode; those that were training are set back to it afterwards."""
    training = [model for model in models if model is not None and model.training]
    try:
        for model in training:
            model.eval()
        yield
    finally:
        for model in training:
            model.train()


def answer(
    input_ids: torch.Tensor, results: list[Result], config: GenerationConfig
) -> torch.Tensor | Generated:
    """The output of `generate`: the sequences, or `Generated` if the config asks for it."""
    pad = config._pad_token_tensor
    sequences = padded(input_ids, [r.tokens for r in results], int(pad) if pad is not None else 0)
    if not config.return_dict_in_generate:
        return sequences
    return Generated(
        sequences=cast(torch.LongTensor, sequences),
        metrics=[r.metrics for r in results],
        rounds=[r.rounds for r in results],
        results=results,
    )


def padded(input_ids: torch.Tensor, new: Sequence[list[TokenId]], pad: TokenId) -> torch.Tensor:
    """Rows (rows, prompt) followed by their new tokens, filled up to the longest with `pad`."""
    longest = max(map(len, new))
    filled = torch.tensor(
        [tokens + [pad] * (longest - len(tokens)) for tokens in new], dtype=input_ids.dtype
    )
    return torch.cat([input_ids, filled.view(len(new), longest).to(input_ids.device)], dim=1)
