"""What a call of transformers' `generate` needs around a decoder.

Its pair, which is kept with the model, as making one runs a check; what its streamers get; and its
result.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import GenerateDecoderOnlyOutput
from transformers.generation.streamers import BaseStreamer

from decoders.engine.heads.head import Head
from decoders.engine.loading.pair import ModelPair
from decoders.result import Event, Metrics, Result
from decoders.shapes import TokenId
from decoders.trace import Round

NAME = "_decoders_pairs"
MOST = 4  # pairs that one model keeps, each with its draft in memory


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


def answer(
    input_ids: torch.Tensor, results: list[Result], config: GenerationConfig
) -> torch.Tensor | Generated:
    """The output of `generate`: the sequences, or `Generated` if the config asks for it."""
    pad = config._pad_token_tensor
    new = [torch.tensor(result.tokens, dtype=input_ids.dtype) for result in results]
    filled = pad_sequence(new, batch_first=True, padding_value=0 if pad is None else int(pad))
    sequences = torch.cat([input_ids, filled.to(input_ids.device)], dim=1)
    if not config.return_dict_in_generate:
        return sequences
    return Generated(
        sequences=cast(torch.LongTensor, sequences),
        metrics=[r.metrics for r in results],
        rounds=[r.rounds for r in results],
        results=results,
    )


class Pairs(list):
    """The pairs of which a model is the target.

    They are kept on the model, so that they go with it; copies and files of the model have none.
    """

    def __reduce__(self) -> tuple[type, tuple]:
        return Pairs, ()


def pair_of(
    model: PreTrainedModel,
    draft: PreTrainedModel | Head | None,
    tokenizer: Any = None,
    draft_tokenizer: Any = None,
) -> ModelPair:
    """The pair of these models.

    It is made at the first call, and follows what is changed afterwards.

    Args:
        model: the target
        draft: the draft model or None
        tokenizer: the target's tokenizer
        draft_tokenizer: the draft's, if its family is another

    Raises:
        InputError: if the models cannot be decoded with
    """
    pairs = vars(model).setdefault(NAME, Pairs())
    for pair in pairs:
        if (
            pair.draft is draft
            and pair.tokenizer is tokenizer
            and pair.draft_tokenizer is draft_tokenizer
        ):
            return pair
    pairs.append(ModelPair(model, draft, tokenizer, draft_tokenizer))
    del pairs[:-MOST]
    return pairs[-1]
