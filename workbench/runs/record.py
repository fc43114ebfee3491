"""A run: the results of a study, as plain data.

The JSON of a run is these dataclasses field by field; the page, the exports, the terminal and the
`/compare` endpoint read nothing else. Runs of older versions are read too, see `version1`.
"""

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from decoders import InputError
from workbench.runs.agreement import Agreement
from workbench.runs.trace import (
    Energy,
    Lap,
    Piece,
    Prefix,
    PromptPart,
    RoundRecord,
    Server,
    TokenRecord,
)
from workbench.runs.values import (
    Amount,
    Count,
    Date,
    Decoder,
    Metrics,
    Plain,
    PlainStudy,
    Scores,
    one_of,
)
from workbench.runs.version1 import FORMAT, upgraded
from workbench.studies.schemes import ALONE, SCHEMES

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
        chances: of advice, for each token the chance that a draft there is accepted
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
            `measuring.totals`)
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
        settings: the decoder's own settings, if they differ from its defaults and from the study's
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
    scheme: Annotated[str, one_of(SCHEMES)] = ALONE
    agreement: Agreement | None = None
    error: str | None = None
    remarks: list[str] = field(default_factory=list)
    settings: Plain = field(default_factory=dict)
    server: Server | None = None

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
        """The decoders that have a result, in the order in which they ran."""
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
