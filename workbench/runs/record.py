"""A run: the results of a study, as plain data.

The JSON of a run is these dataclasses field by field; the page, the exports, the terminal and the
`/compare` endpoint read nothing else. A run may come from anybody's file, and whatever shows it
relies on the bounds of its fields. Runs of older versions are read too, see `version1`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from decoders import Fate, InputError
from workbench.runs.version1 import FORMAT, upgraded
from workbench.studies.settings import known
from workbench.studies.study import ALONE, SCHEMES

# Whole numbers that every reader of JSON reads alike.
Count = Annotated[int, Field(ge=0, le=2**53)]
# Sums, squares and ratios of these stay within floating point.
Amount = Annotated[float, Field(ge=-1e100, le=1e100)]
Number = Annotated[int, Field(ge=-(2**53), le=2**53)] | Amount | str | None


def date() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def refused_if(wrong: Callable[[Any], bool], says: str) -> AfterValidator:

    def checked(value: Any) -> Any:
        if wrong(value):
            raise ValueError(says)
        return value

    return AfterValidator(checked)


def _after_tomorrow(text: str) -> bool:
    when = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return when > datetime.now(UTC) + timedelta(days=1)


def _worded(metrics: dict[str, Any]) -> bool:
    return any(isinstance(metrics[name], str) for name in metrics if name != "energy_source")


def _strict(data: dict[str, Any]) -> dict[str, Any]:
    json.dumps(data, allow_nan=False)
    return data


Decoder = Annotated[str, refused_if(lambda name: not known(name), "no such decoder")]
# ISO 8601; a later date would stay on top of every list.
Date = Annotated[str, refused_if(_after_tomorrow, "the date is in the future")]
Scores = Annotated[
    dict[str, float | str],
    refused_if(lambda scores: isinstance(scores.get("score"), str), "the score is a text"),
]
Metrics = Annotated[dict[str, Number], refused_if(_worded, "a text stands where a number belongs")]
# An object that strict JSON can hold.
Plain = Annotated[dict[str, Any], AfterValidator(_strict)]
PlainStudy = Annotated[
    Plain,
    refused_if(
        lambda study: not isinstance(study.get("settings"), dict), "the study has no settings"
    ),
]


UNTOLD = "untold"  # the fate of a token of which its server does not tell
FateName = Annotated[
    str, refused_if(lambda name: name not in (*Fate, UNTOLD), "no such fate of a token")
]


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the five likeliest tokens at a place; `p` is its probability under the raw target."""

    id: Count
    text: str
    p: Amount


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of a text whose trace is not kept; `text` as in `TokenRecord`."""

    id: Count
    text: str


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A stretch of a prompt that a chat template rendered.

    Attributes:
        text: its text
        tokens: how many of the prompt's tokens it has
        template: whether the template wrote it; otherwise it is what messages say
    """

    text: str
    tokens: Count
    template: bool


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first tokens of a text.

    Attributes:
        tokens: their vocabulary ids
        text: a label for the last of them
        p: the probability that a text of the target, warped as sampled, begins with all of them
    """

    tokens: list[Count]
    text: str
    p: Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token of the output.

    Attributes:
        id: vocabulary id
        node: its node in the request's tree (as in `RoundRecord`)
        text: its piece; all pieces joined are the output's text. If a character spans several
            tokens, the last one has the whole character and the others have "", as do special
            tokens such as end of sequence
        fate: its fate
        round: the round that kept it; of an engine, the piece of the answer that brought it
        p: the target's probability that the rule compared, None if it compared none
        q: the draft's probability, likewise
        accept_probability: probability of accepting it, None if nothing was random
        u: the random number that decided, likewise
        log_p: nats, under the raw target
        alternatives: the likeliest tokens at this place, likeliest first
    """

    id: Count
    node: Count
    text: str
    fate: FateName
    round: Count | None
    p: Amount | None
    q: Amount | None
    accept_probability: Amount | None
    u: Amount | None
    log_p: Amount | None
    alternatives: list[Alternative]


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One token that was tried, kept or not; several draws of one node are several trials.

    Attributes:
        node: its node in the request's tree; nodes below `Sample.prompt_length` are the prompt
        parent: the node before it, which has a lower number
        token: vocabulary id
        text: a label: its text at this place, or an approximation if a character is unfinished
        fate: its fate
        p: as in `TokenRecord`
        q: likewise
        accept_probability: likewise
        u: likewise
        log_p: nats, under the raw target; of kept tokens only
    """

    node: Count
    parent: Annotated[int, Field(ge=-1, le=2**53)]
    token: Count
    text: str
    fate: FateName
    p: Amount | None
    q: Amount | None
    accept_probability: Amount | None
    u: Amount | None
    log_p: Amount | None = None


# A circle of parents would keep a browser drawing for ever.
_Rooted = refused_if(
    lambda trials: any(t.parent >= t.node for t in trials),
    "a token is its own ancestor: parents have lower numbers than their children",
)


@dataclass(frozen=True, slots=True)
class Server:
    """The server of another engine that gave a result.

    Attributes:
        kind: the engine, such as "vllm"
        version: of the engine; None if it is not told
        model: the model that it serves, in its own words; None likewise
    """

    kind: str
    version: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One turn of a decoder: all tokens that it tried, and the output afterwards.

    Attributes:
        index: number of the round, from 0
        trials: the tokens that it tried
        keep: tokens of the earlier output that the new output begins with
        nodes: the nodes that follow them
        provisional: whether a later round may take tokens back (beams)
        draft_seconds: wall time of the draft model
        verify_seconds: wall time of the target
        target_calls: forward passes of the target
        draft_calls: forward passes of the draft model
    """

    index: Count
    trials: Annotated[list[TrialRecord], _Rooted]
    keep: Count
    nodes: list[Count]
    provisional: bool
    draft_seconds: Amount
    verify_seconds: Amount
    target_calls: Count
    draft_calls: Count


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy of a stretch of work, or the reason why it is not known.

    Attributes:
        joules: None if not measured, never 0
        source: "measured: GPU energy counter", "CPU package (RAPL)", "CPU package and memory
            (RAPL)", "below resolution", "not measured: reason" or "not attributable: reason";
            earlier versions: "integrated from N power samples"
        detail: more that a reader needs to judge the figure, such as the length of the window
    """

    joules: Amount | None
    source: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """The machine's counters during a lap, None for each that cannot be read on this machine.

    Attributes:
        cpu_share: time of the decoding thread on a core / time of its clock
        preempted: of earlier versions: times per second that another program took a core from a
            worker of the decoding thread
        throttled: likewise: share of the time in which the container's limit kept the cores away
        stolen: likewise: share of the time in which the hypervisor did
        pressure: share of the time in which some thread of the machine waited for a core
        gpu: who else used the GPU, in earlier versions also why it was slow; "" if nobody did
    """

    cpu_share: Amount | None = None
    preempted: Amount | None = None
    throttled: Amount | None = None
    stolen: Amount | None = None
    pressure: Amount | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class Lap:
    """One timing of a job.

    Attributes:
        seconds: seconds of the models and the decoder, without drawing
        rounds: for a single request, the seconds of each round; [] for batches
        energy: energy of this lap
        after_first: `seconds` without each batch's first round, which also reads the prompts; None
            if prompts are not read apart
        drafting: for a single request, the seconds of each round's draft passes
        verifying: likewise of its target passes
        drawn: whether a screen was drawn meanwhile, which `energy` then includes
        same_rounds: whether each round gained and drafted as many tokens as in the first lap
        same_tokens: whether the output is the same as in the first lap
        load: the machine's counters
    """

    seconds: Amount
    rounds: list[Amount]
    energy: Energy
    after_first: Amount | None = None
    drafting: list[Amount] = field(default_factory=list)
    verifying: list[Amount] = field(default_factory=list)
    drawn: bool = True
    same_rounds: bool = True
    same_tokens: bool = True
    load: Load = field(default_factory=Load)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether a result has the tokens that it must have.

    Attributes:
        reference: the decoder whose tokens these must equal: greedy for an exact decoder at
            temperature 0, else the same decoder with the same seed in another batch
        compared: prompts compared
        differing: prompts whose tokens differ; the fields below describe the first of them and are
            None if not known
        differs_at: index of the first token that differs
        gap: nats between the reference's token there and the other one, under the raw target in the
            reference's run; None if the other is not among its five likeliest
        noise: nats by which the two results' log-probabilities of the same tokens differ before
            that token: passes of different shapes round differently
        near_tie: whether the gap is within the noise of both sides
        dtype: of the target's weights
        verdict: that of the judge of greedy texts, if it was asked
        says: its reasons, in words
    """

    reference: str
    compared: Count
    differing: Count
    differs_at: Count | None = None
    gap: Amount | None = None
    noise: Amount | None = None
    near_tie: bool = False
    dtype: str = ""
    verdict: str = ""
    says: str = ""


LARGEST_FILE = 50 * 2**20  # bytes of a run's JSON


@dataclass(frozen=True, slots=True)
class Sample:
    """The text that a decoder wrote after one prompt; the job's `keep` says how much of it is kept.

    Attributes:
        prompt: index among the study's prompts
        prompt_length: tokens of the prompt
        text: the text
        tokens: its tokens, of samples that keep their trace
        rounds: the decoder's rounds, likewise
        gained: for each round, the tokens that the output gained (tau of EMS-SD)
        drafted: for each round, the tokens that were drafted
        chances: of advice, which earlier versions gave
        ids: of an experiment, the ids of the output's tokens
        pieces: of a draw, its tokens
        beams: of a draw whose decoder's law is beam sampling, the tokens of its first step's beams
        prompt_ids: token ids of the prompt, of samples that keep their trace
        prompt_parts: likewise, what a chat template wrote of it; [] without one, or if unknown
        arrivals: of an engine, the seconds at which the pieces of its answer arrived
        count: of an engine in an experiment of an earlier version, the number of its tokens
        finished: why it ended ("end of sequence", "budget", "cancelled", ...), None if it failed
        error: one sentence if it failed
        scores: of an experiment, what its scorer said; None if it has none
        category: of an experiment, that of the prompt
        id: of an experiment, the prompt's name in its set

    Source:
        Ni et al. 2024 (EMS-SD, arXiv 2405.07542), appendix B, for `gained`.
    """

    prompt: Count
    prompt_length: Count
    text: str = ""
    tokens: list[TokenRecord] = field(default_factory=list)
    rounds: list[RoundRecord] = field(default_factory=list)
    gained: list[Count] = field(default_factory=list)
    drafted: list[Count] = field(default_factory=list)
    chances: list[Amount] = field(default_factory=list)
    ids: list[Count] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    beams: list[Count] = field(default_factory=list)
    prompt_ids: list[Count] = field(default_factory=list)
    prompt_parts: list[PromptPart] = field(default_factory=list)
    arrivals: list[Amount] = field(default_factory=list)
    count: Count | None = None
    finished: str | None = None
    error: str | None = None
    scores: Scores | None = None
    category: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one job.

    Attributes:
        decoder: its id
        repeat: which repeat of the study the job was
        seed: seed of the first prompt
        metrics: by the names of `decoders.Metrics`, over all prompts together (see
            `measuring.job.totals`)
        energy: energy of one lap of the job
        samples: one for each prompt decoded
        laps: its timings, from which the seconds in `metrics` are estimated
        batch_size: requests decoded at once
        scheme: how they shared a batch
        agreement: None if no other tokens must be the same
        error: one sentence if the job broke down; samples and metrics then hold everything measured
            before
        remarks: sentences about its timings that a reader of the figures must know, such as that
            one failed
        settings: of advice, which earlier versions gave, the decoder's own settings
        server: of an engine, what it is
    """

    decoder: Decoder
    repeat: Count
    seed: int
    metrics: Metrics
    energy: Energy
    samples: Annotated[list[Sample], Field(min_length=1)]
    laps: list[Lap] = field(default_factory=list)
    batch_size: Annotated[int, Field(ge=1, le=2**20)] = 1
    scheme: Annotated[str, refused_if(lambda name: name not in SCHEMES, "no such scheme")] = ALONE
    agreement: Agreement | None = None
    error: str | None = None
    remarks: list[str] = field(default_factory=list)
    settings: Plain = field(default_factory=dict)
    server: Server | None = None

    @property
    def alone(self) -> Sample:
        return self.samples[0]

    @property
    def errors(self) -> list[str]:
        return [self.error] if self.error else [s.error for s in self.samples if s.error]

    @property
    def cancelled(self) -> bool:
        return any(s.finished == "cancelled" for s in self.samples)


@dataclass(frozen=True)
class Run:
    """The results of a study.

    Attributes:
        id: unique, of the characters 0-9a-f
        created: UTC, ISO 8601
        kind: kind of the study
        title: title of the study, for lists
        study: the study as its `to_json` has it, which the kind's own room reads
        environment: device, dtype, versions and models that it ran on
        results: in the order in which the jobs ran
        cancelled: whether it was stopped before its end
        exact: of draws, the likeliest first tokens under the target with their exact probabilities
        format: marks the file as a run
        version: version of the format
    """

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    id: Annotated[str, StringConstraints(pattern="^[0-9a-f]{1,64}$")]
    created: Date
    kind: Annotated[str, StringConstraints(pattern="^[a-z_]{1,32}$")]
    title: str
    study: PlainStudy
    environment: Plain
    results: list[Result]
    cancelled: bool = False
    exact: list[Prefix] = field(default_factory=list)
    format: Literal["decoding-workbench run"] = FORMAT
    version: Literal[3] = 3

    @property
    def decoders(self) -> list[str]:
        return list(dict.fromkeys(r.decoder for r in self.results))

    @property
    def models(self) -> str:
        models = [self.environment.get(role) for role in ("target", "draft")]
        return " + ".join(str(m["name"]) for m in models if isinstance(m, dict) and "name" in m)

    @property
    def settings(self) -> dict[str, Any]:
        return self.study["settings"]

    def to_json(self) -> dict[str, Any]:
        """The run as plain data for a strict JSON file: no NaN, no Infinity."""
        return _RUN.dump_python(self, mode="json")

    def dumps(self) -> str:
        return _RUN.dump_json(self).decode()

    @staticmethod
    def from_json(text: str | bytes) -> "Run":
        """Read a run of this version or an older one.

        Raises:
            InputError: in one sentence, if the file is broken, too large or not a run
        """
        if len(text) > LARGEST_FILE:
            raise InputError(
                f"The file is larger than {LARGEST_FILE // 2**20} MB, the limit for a run."
            )
        try:
            return _RUN.validate_json(json.dumps(upgraded(json.loads(text))))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = "".join(
                f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"]
            ).removeprefix(".")
            raise InputError(
                f"This is not a run of the workbench: {place or 'the file'}: {first['msg']}."
            ) from None
        except (
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ) as error:
            why = (
                "it is not JSON"
                if isinstance(error, json.JSONDecodeError)
                else "a part of it is missing or malformed"
            )
            raise InputError(f"This is not a run of the workbench: {why}.") from None


_RUN = TypeAdapter(Run)
