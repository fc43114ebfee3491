"""One timing of a job as a run holds it: its seconds, its energy and the machine's counters."""

from dataclasses import dataclass, field

from workbench.runs.values import Amount


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy of a stretch of work, or the reason why it is not known.

    Attributes:
        joules: None if not measured, never 0
        source: "measured: GPU energy counter", "integrated from N power samples", "CPU package
            (RAPL)", "below resolution", "not measured: reason" or "not attributable: reason"
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
