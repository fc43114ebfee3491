"""What a run keeps of a job: the work on a prompt token by token, and the timings of the whole."""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from decoders import Fate
from workbench.runs.values import Amount, Count, one_of, refused_if

UNTOLD = "untold"  # the fate of a token of which its server does not tell
FateName = Annotated[str, one_of([*Fate, UNTOLD])]


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
        source: "measured: GPU energy counter", "integrated from N power samples", "CPU package
            (RAPL)", "CPU package and memory (RAPL)", "below resolution", "not measured:
            reason" or "not attributable: reason"
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
        preempted: times per second that another program took a core from a worker of the decoding
            thread, so that the thread waited for nothing; its own interruptions are in `cpu_share`
        throttled: share of the time in which the container's limit kept the cores away
        stolen: share of the time in which the hypervisor did
        pressure: share of the time in which some thread of the machine waited for a core
        gpu: why the GPU was slower than it could be, or shared; "" if it was neither
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
