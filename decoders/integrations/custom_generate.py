"""Any decoder inside transformers' `generate`, through its argument `custom_generate`.

Drafts may come from transformers' candidate generators: assisted generation under our rules.

Example:
    method = decoders.hf("mtad", draft=draft, threshold=0.1)
    model.generate(**inputs, custom_generate=method, max_new_tokens=64)
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast
from weakref import WeakSet

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation import (
    EosTokenCriteria,
    GenerateDecoderOnlyOutput,
    LogitsProcessorList,
    MaxLengthCriteria,
    StoppingCriteriaList,
)
from transformers.generation.candidate_generator import (
    AssistedCandidateGenerator,
    CandidateGenerator,
)
from transformers.generation.streamers import BaseStreamer

from decoders.engine.heads.head import Head
from decoders.engine.loading.pair import ModelPair
from decoders.engine.models.loaded import in_eval_mode
from decoders.errors import InputError, ModelError, refuse
from decoders.generate import stream
from decoders.inputs import as_seed, as_stops, as_tokenizer, stop_finder
from decoders.integrations.fields import PromptRow, refuse_soft_prompt, rows, sampling, withheld
from decoders.methods.catalog import as_method
from decoders.methods.named import Combination
from decoders.methods.rules import Tokenwise
from decoders.methods.sources import Draft, Drafting, Kind, Source, certain
from decoders.reading import Reading
from decoders.request import Ask, Request
from decoders.settings import Method, setting
from decoders.shapes import TokenId
from decoders.trace import Event, Metrics, Result, Round


def proposes_from_text(owner: str, generator: Any) -> CandidateGenerator:
    """The generator, if it needs only the text so far.

    Raises:
        InputError: for any other, by name
    """
    name = type(generator).__name__
    refuse(
        (
            not isinstance(generator, CandidateGenerator),
            f"{owner}: a draft is a model or a candidate generator of transformers, not {name}.",
        ),
        (
            isinstance(generator, AssistedCandidateGenerator),
            f"{name} follows one text with its own model; give that model as the draft instead.",
        ),
        (
            getattr(generator, "requires_model_outputs", False),
            f"{name} drafts from outputs of the model, which decoders do not pass on; take "
            "PromptLookupCandidateGenerator or another that needs the text alone.",
        ),
    )
    return generator


GENERATOR = setting(None, "the candidate generator", read=proposes_from_text)


@dataclass(frozen=True)
class Proposals(Source):
    """A candidate generator's tokens, which count as certain."""

    name = "candidates"
    kind = Kind.CERTAIN

    generator: Any = GENERATOR

    def start(self, request: Request) -> Drafting:
        return Drafting(self._propose)

    def _propose(self, request: Request) -> Generator[Ask, list[Reading], Draft]:
        yield from ()  # asks no model
        if request.left < 2:
            return certain(request, ())
        text = request.tree.text(request.tip)
        candidates, _ = self.generator.get_candidates(torch.tensor([text]))
        tokens = candidates[0, len(text) :].tolist()
        if strange := [t for t in tokens if not 0 <= t < request.vocabulary]:
            raise ModelError(
                f"{type(self.generator).__name__} proposed the token {strange[0]}, which is "
                "outside the target's vocabulary."
            )
        return certain(request, tokens)


@dataclass(frozen=True)
class Candidates(Combination):
    """Speculative sampling of a candidate generator's proposals.

    Each token is accepted with probability p, else a token is drawn from the rest of p. So the
    output has the target's law wherever they come from.

    Attributes:
        generator: serves all requests of a batch, so it must be a function of the text alone
        lenience: as for `speculative`

    Raises:
        InputError: if the generator needs more than the text
    """

    name = "candidates"
    paper, section = "Leviathan et al. 2023", "2.3"
    summary = "Drafts come from a candidate generator of transformers; the target tests them."

    usual = Proposals, Tokenwise
    takes = "generator", "lenience"


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


def collect(events: Iterator[Event], streamer: BaseStreamer | None) -> list[Result]:
    """The result of each row.

    A streamer gets tokens one by one, as from `generate`, and none that a later round may take
    back.
    """
    results: dict[int, Result] = {}
    tokens, sent = list[TokenId](), 0
    for event in events:
        if event.result is not None:
            if event.result.error is not None:
                raise event.result.error
            results[event.request] = event.result
        if streamer is not None:
            tokens = tokens[: event.keep] + event.append
            for token in () if event.provisional else tokens[sent:]:
                streamer.put(torch.tensor([token]))
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


def hf(
    method: Method | str,
    *,
    draft: PreTrainedModel | Head | CandidateGenerator | None = None,
    tokenizer: Any = None,
    draft_tokenizer: Any = None,
    stop: str | Sequence[str] = (),
    seed: int | Sequence[int] | None = None,
    **settings: Any,
) -> "CustomGenerate":
    """A decoder for the argument `custom_generate` of transformers' `generate`.

    It takes batches of left-padded prompts. `return_dict_in_generate` returns `Generated`. Your own
    stopping criteria see one row at a time after every token, (1, tokens) with its padding and
    without scores, and end that row alone.

    Args:
        method: a decoder, or its name in the catalog
        draft: a draft model, or a head as `load_pair(target, head).draft`; for "speculative" also a
            candidate generator that needs only the text
        tokenizer: for `stop`, reference documents, and vocabularies of different sizes
        draft_tokenizer: the draft's, if its family is another; `tokenizer` is then needed too
        stop: strings that end a text; `generate` itself refuses `stop_strings` for such a method
        seed: row i gets seed + i, or one for each row; by default drawn from torch's generator
        settings: the decoder's settings, if `method` is a name

    Raises:
        InputError: for an unknown decoder or setting. The call raises it before any work
            if `generate` asks for something that decoders do not do: repeated rows, other logits
            processors or ways of decoding, scores, or a cache that is not empty.
    """
    if isinstance(draft, CandidateGenerator) and method == "speculative":
        method, draft, settings = Candidates(draft, **settings), None, {}
    decoder = as_method(method, **settings)
    as_tokenizer("tokenizer", tokenizer)
    as_tokenizer("draft_tokenizer", draft_tokenizer)
    refuse(
        (
            draft is not None and not isinstance(draft, (PreTrainedModel, Head)),
            f"{decoder.name} cannot draft with {type(draft).__name__}; give a model, or take "
            '"speculative" for a candidate generator.',
        ),
        (
            decoder.uses_draft and draft is None,
            f'{decoder.name} needs a draft model: decoders.hf("{decoder.name}", draft=model).',
        ),
        (
            decoder.uses_head and not isinstance(draft, Head),
            f"{decoder.name} needs a head of the target, as load_pair(target, head).head; give it "
            "as draft.",
        ),
        (
            draft_tokenizer is not None and (draft is None or tokenizer is None),
            "draft_tokenizer goes with a draft model and the target's own tokenizer; give draft "
            "and tokenizer too.",
        ),
    )
    return CustomGenerate(
        decoder,
        cast(PreTrainedModel | Head | None, draft),
        tokenizer,
        draft_tokenizer,
        stops=tuple(as_stops(stop, tokenizer)),
        seed=None if seed is None else as_seed(seed),
    )


@dataclass(eq=False)
class CustomGenerate:
    """The result of `hf`, with its arguments; `generate` calls it with prepared inputs.

    Every call follows what was changed in the models before it, as those with a `ModelPair` do.
    """

    method: Method
    draft: PreTrainedModel | Head | None
    tokenizer: Any
    draft_tokenizer: Any
    stops: tuple[str, ...]
    seed: int | Sequence[int] | None
    # The pairs that are new enough since the last `refresh`; None if there was none.
    _anew: WeakSet[ModelPair] | None = field(default=None, init=False, repr=False)

    def refresh(self) -> None:
        """Let the next call with each model prepare it anew, see `ModelPair.refresh`."""
        self._anew = WeakSet()

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> torch.Tensor | Generated:
        """input_ids (rows, prompt) -> (rows, prompt + new tokens), padded on the right."""
        streamer, assistant = withheld()
        with ExitStack() as at_end:
            if streamer is not None:
                # However the call ends: a listener would wait for ever otherwise.
                at_end.callback(streamer.end)
            refuse(
                (
                    assistant is not None,
                    "A decoder has its own draft; leave assistant_model out and take "
                    'decoders.hf("speculative", draft=model).',
                ),
                (
                    model.config.is_encoder_decoder,
                    f"{type(model).__name__} is an encoder-decoder model; take a causal language "
                    "model.",
                ),
            )
            prompts = rows(input_ids, model_kwargs, generation_config)
            refuse_soft_prompt(model, input_ids)
            refuse(
                (
                    streamer is not None and len(prompts) > 1,
                    f"A streamer follows one text and there are {len(prompts)} rows; leave it out, "
                    "or give one prompt.",
                ),
            )
            wishes = sampling(generation_config, logits_processor, prompts)
            # A caller's own limit takes the place of the config's, and is asked after each token.
            limits = [c.max_length for c in stopping_criteria if isinstance(c, MaxLengthCriteria)]
            longest = min(limits or [int(generation_config.max_length)])
            wishes["max_new_tokens"] = max(1, longest - input_ids.shape[1])
            wishes |= self._ends(prompts, stopping_criteria, generation_config)
            wishes["seed"] = self.seed
            if self.seed is None:
                # Greedy decoding draws nothing and leaves torch's generator alone, as `generate`.
                wishes["seed"] = int(torch.randint(2**62, ())) if generation_config.do_sample else 0
            models = [m for m in (model, self.draft) if isinstance(m, PreTrainedModel)]
            at_end.enter_context(in_eval_mode(*models))
            pair = pair_of(model, self.draft, self.tokenizer, self.draft_tokenizer)
            if self._anew is not None and pair not in self._anew:
                pair.refresh()
                self._anew.add(pair)
            texts = [row.prompt for row in prompts]
            events = stream(pair, texts, self.method, **wishes)
            return answer(input_ids, collect(events, streamer), generation_config)

    def _ends(
        self, prompts: Sequence[PromptRow], criteria: StoppingCriteriaList, config: GenerationConfig
    ) -> dict[str, Any]:
        ids = [
            c.eos_token_id.flatten().tolist() for c in criteria if isinstance(c, EosTokenCriteria)
        ]
        counted = EosTokenCriteria, MaxLengthCriteria
        others = StoppingCriteriaList([c for c in criteria if not isinstance(c, counted)])
        if config._pad_token_tensor is None and len(prompts) > 1 and (ids or others or self.stops):
            raise InputError("Rows may end at different lengths; give generate a pad_token_id.")
        finds = stop_finder(self.tokenizer, self.stops) if self.stops else None

        def ends(request: int, tokens: list[TokenId]) -> bool:
            """Whether stop strings end it, or the criteria, which see the whole padded row."""
            if finds and finds(tokens):
                return True
            given = prompts[request].given
            text = torch.cat([given, given.new_tensor(tokens)])[None]
            return bool(others) and bool(others(text, None).any())

        return {"end_tokens": frozenset(chain(*ids)), "stop": ends if others or finds else ()}
