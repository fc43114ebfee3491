"""The work of a study: its prompts, admitted before anything runs, and its jobs' instruments."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import decoders
from decoders import InputError, ModelPair, catalog
from decoders.errors import refuse
from decoders.inputs import Encoded, Part, encode
from workbench.engines.addresses import Engine
from workbench.measuring.meter import Meter, Watch
from workbench.runs.record import PromptPart, Result, RoundRecord, TokenRecord
from workbench.studies.prompts import Chat, Prompt, Words
from workbench.studies.settings import Settings, is_engine
from workbench.studies.study import BASELINE, MEGABYTE, Job, Study


def settled(pair: ModelPair, study: Study) -> Study:
    """The study with the settings that depend on the pair decided."""
    settings = study.settings
    if settings.chat_template != "auto":
        return study
    has = bool(getattr(pair.tokenizer, "chat_template", None))
    return replace(cast(Any, study), settings=replace(settings, chat_template=has))


def encoded(pair: ModelPair, study: Study) -> list[Encoded]:
    known = {prompt: _encoded(pair, prompt, study.settings) for prompt in study.prompts}
    return [known[prompt] for prompt in study.prompts]


def admit(
    pair: ModelPair, study: Study, prompts: Sequence[Encoded] | None = None
) -> list[list[int]]:
    """The token ids of the study's prompts.

    Args:
        prompts: its prompts, if they are encoded already

    Raises:
        InputError: with the prompt's name, for everything that `decoders.stream` would refuse
    """
    settings = study.settings
    ids = [each.ids for each in prompts or encoded(pair, study)]
    for prompt, tokens in zip(study.prompts, ids, strict=True):
        if pair.positions is not None and len(tokens) + settings.max_new_tokens > pair.positions:
            raise InputError(
                f"{prompt.place}: its {len(tokens)} tokens and {settings.max_new_tokens} new ones "
                f"exceed the {pair.positions} positions of the models; shorten it or ask for fewer "
                "tokens."
            )
    jobs = study.jobs()
    if (budget := jobs[0].max_cache_bytes) is not None:
        _check_budget(pair, study, ids, budget)
    for job in {(job.method, job.scheme): job for job in jobs}.values():
        if not is_engine(job.method.name):
            decoders.check(pair, ids, job.method, **settings.decoding, **job.batching)
    return ids


def _encoded(pair: ModelPair, prompt: Prompt, settings: Settings) -> Encoded:
    """A prompt as token ids; those of a branch are known, and its text only says what they mean."""
    if not prompt.ids:
        return encode_prompt(pair, prompt.text, settings.chat_template, settings.system)
    if isinstance(prompt.text, Chat):
        try:
            encoded = encode_prompt(pair, prompt.text, system=settings.system)
        except InputError:
            return Encoded(list(prompt.ids))
        if encoded.ids == list(prompt.ids):
            return encoded
    return Encoded(list(prompt.ids))


def encode_prompt(
    pair: ModelPair, prompt: Words, chat_template: bool | str = False, system: str = ""
) -> Encoded:
    """A prompt as token ids, as a study uses them.

    Args:
        prompt: a text, or a chat, which the tokenizer's chat template renders in any case
        chat_template: whether a text is what the user says in a chat; "auto" if there is a template
        system: the system message of the chat, "" for none or the template's own

    Raises:
        InputError: if the prompt is empty, or there is no chat template to apply
    """
    has = bool(getattr(pair.tokenizer, "chat_template", None))
    chat = has if chat_template == "auto" else bool(chat_template)
    if isinstance(prompt, Chat):
        messages = prompt.to_json()
    else:
        refuse(
            (not prompt, "The prompt is empty; give at least one character."),
            (
                chat and not has,
                "This pair's tokenizer has no chat template; switch it off, or load a chat model.",
            ),
            (
                system and not chat,
                "A system message needs the chat template, which is off or missing; leave `system` "
                "empty.",
            ),
        )
        if not chat:
            return encode(prompt, pair.tokenizer, pair.vocabulary)
        messages = [{"role": "user", "content": prompt}]
    if system and any(message["role"] == "system" for message in messages):
        raise InputError("The messages have a system message already; leave `system` empty.")
    first = [{"role": "system", "content": system}] if system else []
    return encode([*first, *messages], pair.tokenizer, pair.vocabulary)


def _check_budget(pair: ModelPair, study: Study, ids: Sequence[list[int]], budget: int) -> None:
    """Refuse a memory budget in bytes that a request alone can outgrow.

    The InputError names the prompt that needs most.
    """
    new = study.settings.max_new_tokens
    longest = max(range(len(ids)), key=lambda i: len(ids[i]))
    needs = {
        m: decoders.cache_need(pair, m, len(ids[longest]), new)
        for m in (catalog[BASELINE](), *study.settings.methods)
    }
    method = max(needs, key=needs.__getitem__)
    if needs[method] > budget:
        least = math.ceil(needs[method] / MEGABYTE * 100) / 100
        raise InputError(
            f"{study.prompts[longest].place}: with {method.name} its {len(ids[longest])} tokens "
            f"and {new} new ones can need {least:.2f} MB of cache, and the memory budget is "
            f"{budget / MEGABYTE:g} MB; give at least {least:.2f}, shorten the prompt or ask for "
            "fewer tokens."
        )


Outputs = Mapping[int, Sequence[int]]  # prompt -> its token ids
WARM_UP_TOKENS = 8


class StopClock:
    """Seconds that do not pass while it is stopped."""

    def __init__(self, now: Callable[[], float] = time.perf_counter):
        self._now, self._away = now, 0.0

    def __call__(self) -> float:
        return self._now() - self._away

    @contextmanager
    def stopped(self) -> Iterator[None]:
        began = self._now()
        try:
            yield
        finally:
            self._away += self._now() - began


@dataclass(frozen=True, slots=True)
class Update:
    """The state of a job under way.

    Attributes:
        done: tokens written
        tokens: its text so far, for jobs that keep a trace
        rounds: its rounds so far, likewise
        provisional: whether a later round may take tokens back
        seconds: seconds of computing so far
    """

    done: int
    tokens: list[TokenRecord]
    rounds: list[RoundRecord]
    provisional: bool
    seconds: float


@dataclass(frozen=True)
class Work:
    """The instruments that jobs are run with.

    Attributes:
        pair: the pair
        ids: the token ids of every prompt
        settings: the study's
        meter: measures energy
        watch: reads the machine's counters
        cancelled: whether to stop
        texts: the prompts as text, None for those that only their ids tell
        engines: the engines that may be asked, by name
        parts: of every prompt, what its chat template wrote and what not
    """

    pair: ModelPair
    ids: Sequence[list[int]]
    settings: Settings
    meter: Meter
    watch: Watch
    cancelled: Callable[[], bool]
    texts: Sequence[str | None] = ()
    engines: Mapping[str, Engine] = field(default_factory=dict)
    parts: Sequence[Sequence[Part]] = ()

    def options(self, job: Job, prompts: Sequence[int]) -> dict[str, Any]:
        return {
            **self.settings.decoding,
            **job.batching,
            "seed": [job.seed + i for i in prompts],
            "cancel": self.cancelled,
        }

    def warm_up(self, job: Job) -> None:
        """Run a few tokens of a batch untimed, which sets up later passes."""
        prompts = range(len(self.ids))[: job.batch_size]
        options = self.options(job, prompts)
        options["max_new_tokens"] = min(WARM_UP_TOKENS, self.settings.max_new_tokens)
        decoders.generate(self.pair, [self.ids[i] for i in prompts], job.method, **options)


def parts_of(work: Work, prompt: int) -> list[PromptPart]:
    """What a chat template wrote of a prompt and what not; [] if that is not known."""
    return [PromptPart(*part) for part in (work.parts[prompt] if work.parts else ())]


@dataclass(frozen=True)
class Measured:
    """The measurement of one lap.

    Attributes:
        result: a result with this lap alone
        outputs: each prompt's token ids
        rounds: for each request, the tokens that its rounds gained and drafted
    """

    result: Result
    outputs: Outputs
    rounds: list[tuple[list[int], list[int]]]
