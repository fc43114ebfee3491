"""A run: what came of a study, as plain data.

The JSON of a run is these dataclasses field by field; the page, the exports, the terminal and the `/compare` endpoint read nothing else.
Older versions are read too, see `version1`.
"""

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from decoders import InputError, catalog
from workbench.runs.trace import Piece, Prefix, RoundRecord, TokenRecord
from workbench.runs.values import Amount, Count, Date, Metrics, Plain, PlainStudy, one_of
from workbench.runs.version1 import FORMAT, upgraded
from workbench.studies.schemes import ALONE, SCHEMES

LARGEST_FILE = 50 * 2**20  # bytes of a run's JSON


@dataclass(frozen=True, slots=True)
class Energy:
    """joules      None if not measured, never 0
    source      "measured: GPU energy counter", "integrated from N power samples", "CPU package (RAPL)", "below resolution",
                "not measured: reason" or "not attributable: reason"
    detail      what else a reader must know to judge the figure, such as the length of the window
    """

    joules: Amount | None
    source: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a decoder wrote after one prompt; how much of it is kept is the job's `keep`.

    prompt        index among the study's prompts;   prompt_length  its tokens;   prompt_ids  these, of samples that keep their trace
    gained        for each round the tokens that the output gained (tau of ems-sd.txt)
    pieces        of a draw: its tokens;   beams  of a draw of a decoder whose law is beam sampling: the tokens of its first step's beams
    finished      why it ended ("end of sequence", "budget", "cancelled", ...), None if it failed;   error  one sentence if it failed
    """

    prompt: Count
    prompt_length: Count
    text: str = ""
    tokens: list[TokenRecord] = field(default_factory=list)
    rounds: list[RoundRecord] = field(default_factory=list)
    gained: list[Count] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    beams: list[Count] = field(default_factory=list)
    prompt_ids: list[Count] = field(default_factory=list)
    finished: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What the machine's counters said during a lap, None for one that cannot be read here.

    cpu_share   time that the decoding thread was on a core, over the time that its clock ran
    preempted   how often per second another program took a core from a worker of the decoding thread, which then waits in vain;
                what the decoding thread itself lost is in cpu_share
    throttled, stolen   share of the time that the container's limit or the hypervisor kept the cores away
    pressure    share of the time that some thread of the machine waited for a core
    gpu         why the GPU was slower than it could be, or shared; "" if it was neither
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

    seconds      of the models and the decoder, drawing left out;   after_first  the same without each batch's first round, which
                 also reads the prompts, None if prompts are not read apart
    rounds, drafting, verifying   for a single request the seconds of each round, and of its draft and target passes; [] for batches
    energy       of this lap;   drawn  whether a screen was drawn meanwhile: the energy then includes that
    same_rounds  whether each round gained and drafted as many tokens as in the first lap;   same_tokens  whether the output is the same
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

    reference    the decoder whose tokens these must equal: greedy for an exact decoder at temperature 0, else the same decoder with the
                 same seed in another batch
    compared, differing   prompts compared, and those whose tokens differ;   the rest is about the first that differs, None if not known
    differs_at   index of the first token that differs
    gap          nats between the reference's token there and the other one, under the raw target in the reference's own run; None if
                 the other is not among its five likeliest
    noise        nats by which the two results' log-probabilities of the same tokens differ up to there: forward passes of different
                 shapes round differently;   dtype  of the target's weights
    near_tie     whether the gap is within the noise of both sides
    """

    reference: str
    compared: Count
    differing: Count
    differs_at: Count | None = None
    gap: Amount | None = None
    noise: Amount | None = None
    near_tie: bool = False
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one job.

    seed         of the first prompt;   batch_size, scheme  how requests shared a batch
    metrics      by the names of `decoders.Metrics`, over all prompts together (see `measuring.totals`)
    energy       of one lap of the job;   laps  its timings, from which the seconds in `metrics` are estimated;   samples  one for each prompt decoded
    agreement    None if there is nothing that the tokens must equal
    error        one sentence if the job broke down; samples and metrics then have what was measured before
    remarks      sentences about its timings that a reader of the figures must know, such as that one failed
    """

    decoder: Annotated[str, one_of(catalog)]
    repeat: Count
    seed: int
    metrics: Metrics
    energy: Energy
    samples: Annotated[list[Sample], Field(min_length=1)]
    laps: list[Lap] = field(default_factory=list)
    batch_size: Annotated[int, Field(ge=1, le=2**20)] = 1
    scheme: Annotated[str, one_of(SCHEMES)] = ALONE
    agreement: Agreement | None = None
    error: str | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def alone(self) -> Sample:
        """The only sample of a comparison's result."""
        return self.samples[0]

    @property
    def errors(self) -> list[str]:
        """One sentence for each thing that failed."""
        return [self.error] if self.error else [s.error for s in self.samples if s.error]

    @property
    def cancelled(self) -> bool:
        return any(s.finished == "cancelled" for s in self.samples)


@dataclass(frozen=True)
class Run:
    """What came of a study.

    id            unique, of the letters 0-9a-f;   created  UTC, ISO 8601
    kind, study   the kind of study, and the study itself as its `to_json` has it: the room that owns the kind reads it
    title         of the study, for lists;   environment  device, dtype, versions and models it ran on
    results       in the order the jobs ran;   cancelled  whether it was stopped before its end
    exact         of draws: the likeliest first tokens under the target, with their exact probabilities
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
    version: Literal[2] = 2

    @property
    def decoders(self) -> list[str]:
        """Those that have a result, in the order they ran."""
        return list(dict.fromkeys(r.decoder for r in self.results))

    @property
    def models(self) -> str:
        """The pair in one line."""
        models = [self.environment.get(role) for role in ("target", "draft")]
        return " + ".join(str(m["name"]) for m in models if isinstance(m, dict) and "name" in m)

    @property
    def settings(self) -> dict[str, Any]:
        """The study's settings, as `Settings.to_json` has them."""
        return self.study["settings"]

    def to_json(self) -> dict[str, Any]:
        """The run as plain data for a strict JSON file: no NaN, no Infinity."""
        return _RUN.dump_python(self, mode="json")

    def dumps(self) -> str:
        """The same as one compact text."""
        return _RUN.dump_json(self).decode()

    @staticmethod
    def from_json(text: str | bytes) -> "Run":
        """Read a run back, of this version or an older one. Raises InputError, in one sentence, for a file that is broken, too large
        or not a run."""
        if len(text) > LARGEST_FILE:
            raise InputError(f"The file is larger than {LARGEST_FILE // 2**20} MB; a run is smaller.")
        try:
            return _RUN.validate_json(json.dumps(upgraded(json.loads(text))))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"]).removeprefix(".")
            raise InputError(f"This is not a run of the workbench: {place or 'the file'}: {first['msg']}.") from None
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            why = (
                "it is not JSON" if isinstance(error, json.JSONDecodeError) else "a part of it is missing or malformed"
            )
            raise InputError(f"This is not a run of the workbench: {why}.") from None


_RUN = TypeAdapter(Run)
