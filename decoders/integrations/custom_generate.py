"""Any decoder inside of transformers: `model.generate(**inputs, custom_generate=decoders.hf("mtad", draft=draft), max_new_tokens=64)`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import GenerateDecoderOnlyOutput, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.candidate_generator import CandidateGenerator
from transformers.generation.streamers import BaseStreamer

from decoders.catalog import catalog
from decoders.errors import InputError
from decoders.generate import Result, stream
from decoders.inputs import as_stops, stop_finder
from decoders.integrations.asked import Row, rows, sampling, stopping
from decoders.integrations.candidates import Candidates
from decoders.integrations.pairs import pair_of
from decoders.metrics import Metrics
from decoders.settings import Method
from decoders.shapes import TokenId
from decoders.trace import Round


@dataclass
class Generated(GenerateDecoderOnlyOutput):
    """What `generate(..., return_dict_in_generate=True)` returns: `sequences` (rows, tokens) as always, and for each row its metrics, what
    the decoder tried round by round, and the whole result. There are no scores, attentions, hidden states or caches."""

    metrics: list[Metrics] | None = None
    rounds: list[list[Round]] | None = None
    results: list[Result] | None = None


def hf(
    method: Method | str,
    *,
    draft: PreTrainedModel | CandidateGenerator | None = None,
    tokenizer: Any = None,
    streamer: BaseStreamer | None = None,
    stop: str | Sequence[str] = (),
    seed: int | Sequence[int] | None = None,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> "CustomGenerate":
    """A decoder for the argument `custom_generate` of transformers' `generate`: batches of left-padded prompts, sampling, stopping
    criteria after every token, `return_dict_in_generate` (see `Generated`).

    method     a name of the catalog, with its settings as further keywords; or a decoder
    draft      a draft model; or, for "speculative", a candidate generator of transformers that needs the text alone
    tokenizer  for `stop`, for reference documents, and to compare vocabularies of different sizes
    streamer   gets the prompt, then tokens that no later round takes back; `generate` does not pass its own on
    stop       strings that end a text; `generate` refuses its own `stop_strings` before a decoder is called
    seed       row i gets seed + i, or a list has one for each; by default drawn from torch's generator, which `torch.manual_seed` sets
    options    further options of `decoders.stream`: max_batch, prefill_chunk, max_cache_bytes
    Raises InputError for a decoder or settings that there are not; the call itself raises it, before any work, for whatever `generate`
    asks that decoders do not do: repeated rows, other logits processors, scores, caches that are not empty.
    """
    if isinstance(method, str):
        if isinstance(draft, CandidateGenerator) and method == "speculative":
            method, draft = Candidates(draft, **settings), None
        else:
            method = catalog[method](**settings)
    elif settings:
        raise InputError(f"{method.name} has its settings already; give {', '.join(settings)} where it is made.")
    if draft is not None and not isinstance(draft, PreTrainedModel):
        kind = type(draft).__name__
        raise InputError(
            f'{method.name} cannot draft with {kind}; give a model, or take "speculative" for a candidate generator.'
        )
    if method.uses_draft and draft is None:
        raise InputError(f'{method.name} needs a draft model: decoders.hf("{method.name}", draft=model).')
    stops = as_stops(stop, tokenizer)
    return CustomGenerate(method, draft, tokenizer, streamer, tuple(stops), seed, dict(options or {}))


@dataclass(frozen=True, eq=False)
class CustomGenerate:
    """What `hf` returns; `generate` calls it with prepared inputs."""

    method: Method
    draft: PreTrainedModel | None
    tokenizer: Any
    streamer: BaseStreamer | None
    stops: tuple[str, ...]
    seed: int | Sequence[int] | None
    options: Mapping[str, Any]

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> torch.Tensor | Generated:
        """input_ids (rows, prompt) -> (rows, prompt + new tokens), shorter rows padded on the right."""
        prompts = rows(input_ids, model_kwargs, generation_config)
        if self.streamer is not None and len(prompts) > 1:
            raise InputError(
                f"A streamer follows one text and there are {len(prompts)} rows; leave it out, or give one prompt."
            )
        asked = sampling(generation_config, logits_processor)
        ends, criteria = stopping(stopping_criteria)
        budget = int(generation_config.max_length) - input_ids.shape[1]
        seed = self.seed
        if seed is None:  # greedy decoding draws nothing, so it leaves torch's generator alone as `generate` does
            seed = int(torch.randint(2**62, ())) if generation_config.do_sample else 0
        pad = generation_config._pad_token_tensor
        if pad is None and (ends or criteria or self.stops) and len(prompts) > 1:
            raise InputError("Rows may end at different lengths; give generate a pad_token_id.")
        with evaluating(model, self.draft):
            pair = pair_of(model, self.draft, self.tokenizer)
            events = stream(
                pair, [row.prompt for row in prompts], self.method,
                max_new_tokens=budget, seed=seed, end_tokens=ends, stop=self._stop(prompts, criteria), **asked, **self.options,
            )  # fmt: skip
            results = self._results(events, input_ids)
        sequences = padded(input_ids, [r.tokens for r in results], int(pad) if pad is not None else 0)
        if not generation_config.return_dict_in_generate:
            return sequences
        return Generated(
            sequences=cast(torch.LongTensor, sequences),
            metrics=[r.metrics for r in results],
            rounds=[r.rounds for r in results],
            results=results,
        )

    def _stop(self, prompts: Sequence[Row], criteria: StoppingCriteriaList) -> Any:
        """What `stream` asks after every token: the criteria, which see the whole padded row, and the stop strings."""
        finds = stop_finder(self.tokenizer, self.stops) if self.stops else None
        if not criteria and not finds:
            return ()

        def ends(request: int, tokens: list[TokenId]) -> bool:
            if finds and finds(tokens):
                return True
            return bool(criteria) and bool(criteria(prompts[request].followed_by(tokens), None).any())

        return ends

    def _results(self, events: Iterator[Any], input_ids: torch.Tensor) -> list[Result]:
        results: dict[int, Result] = {}
        shown = Shown(self.streamer, input_ids)
        for event in events:
            shown.take(event)
            if event.result is not None:
                if event.result.error is not None:
                    raise event.result.error
                results[event.request] = event.result
        return [results[i] for i in range(len(input_ids))]


class Shown:
    """What a streamer has been given: tokens are held back while a later round may take them back."""

    def __init__(self, streamer: BaseStreamer | None, input_ids: torch.Tensor):
        self.streamer, self.tokens, self.count = streamer, list[TokenId](), 0
        if streamer is not None:
            streamer.put(input_ids.cpu())

    def take(self, event: Any) -> None:
        if self.streamer is None:
            return
        self.tokens = self.tokens[: event.keep] + event.append
        if not event.provisional:
            for token in self.tokens[self.count :]:  # one by one, as `generate` does
                self.streamer.put(torch.tensor([token]))
            self.count = len(self.tokens)
        if event.result is not None:
            self.streamer.end()


@contextmanager
def evaluating(*models: PreTrainedModel | None) -> Iterator[None]:
    """Models in eval mode; those that were training train again afterwards."""
    training = [model for model in models if model is not None and model.training]
    try:
        for model in training:
            model.eval()
        yield
    finally:
        for model in training:
            model.train()


def padded(input_ids: torch.Tensor, new: Sequence[list[TokenId]], pad: TokenId) -> torch.Tensor:
    """Rows (rows, prompt) followed by their new tokens, those that are shorter than the longest filled with `pad`."""
    longest = max(map(len, new))
    filled = torch.tensor([tokens + [pad] * (longest - len(tokens)) for tokens in new], dtype=input_ids.dtype)
    return torch.cat([input_ids, filled.view(len(new), longest).to(input_ids.device)], dim=1)
