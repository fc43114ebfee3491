"""The base of all kinds of study (Study), the jobs that it times, their schemes, and limits.

Schemes are ways in which the requests of a batch share passes and caches (EMS-SD, arXiv 2405.07542,
section 3). A visitor has no limits on their own machine, and some if the public shares one device.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields, replace
from itertools import cycle, islice
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

from decoders import Method
from decoders.errors import InputError, is_whole, quoted, refuse
from workbench.studies import prompts
from workbench.studies.prompts import Prompt
from workbench.studies.settings import Settings

T = TypeVar("T")
LARGEST_BATCH = 1024
MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to share a batch.

    Attributes:
        label: its name on the page
        help: one line for a user
        padding: the `padding` option of `decoders.generate`
        static: whether a batch is decoded to its end before the next one begins; otherwise the next
            request takes a finished one's place at once
    """

    label: str
    help: str
    padding: str
    static: bool = True


SCHEMES = {
    "vanilla": Scheme(
        "padded (usual)",
        "pads inputs and caches to the longest of the batch, as a framework with aligned tensors "
        "must",
        "both",
    ),
    "unpadded_kv": Scheme(
        "unpadded cache",
        "every request's cache has its own length; inputs are padded",
        "inputs",
    ),
    "unpadded_inputs": Scheme(
        "unpadded inputs",
        "the tokens of all requests are laid end to end; caches are padded",
        "kv",
    ),
    "unpadded": Scheme("no padding", "neither is padded (EMS-SD)", "none"),
    "dynamic": Scheme(
        "dynamic batch",
        "neither is padded, and the next request takes a finished one's place at once",
        "none",
        False,
    ),
}
# The only scheme of a batch of one, which has nothing to pad and no place to hand on.
ALONE = "unpadded"
BASELINE = "greedy"  # the decoder that all others are compared with
# The baseline of each kind of batch, in words: see `baseline_scheme`.
BASELINES = {ALONE: "greedy", "dynamic": "greedy, dynamic"}
PADDED = "vanilla"  # the scheme that all others are compared with


def schemes_at(size: int, schemes: Sequence[str]) -> list[str]:
    return list(schemes) if size > 1 else [ALONE]


def baseline_scheme(scheme: str) -> str:
    """The scheme of the greedy run that a scheme is compared with.

    Greedy feeds one token per request, so all static schemes are the same for it. Dynamic batches
    are compared with dynamic ones.
    """
    return ALONE if SCHEMES[scheme].static else scheme


def scheme_label(decoder: str, size: int, scheme: str) -> str:
    """The name of a scheme.

    At batch size 1 there is only one; for the baseline, all static ones are the same.

    Args:
        scheme: a name of `SCHEMES`
    """
    if size == 1:
        return "alone"
    if decoder == BASELINE:
        return "static" if SCHEMES[scheme].static else "dynamic"
    return SCHEMES[scheme].label


def batches(items: Sequence[T], size: int) -> list[list[T]]:
    """The items in batches of exactly `size`: the last one is filled up from the start."""
    return [list(islice(cycle(items), start, start + size)) for start in range(0, len(items), size)]


def in_turn(items: Sequence[T], turn: int) -> Sequence[T]:
    """The items, in every second turn backwards.

    So a machine that gets slower or faster favours none of them.
    """
    return items[::-1] if turn % 2 else items


LOAD = "AIPerf, GuideLLM and `vllm bench serve` put load on servers"
# A sentence for the user, by the name in a link, a run or a plan.
GONE = {
    "engine": f"Plans no longer ask servers of other engines ([[engine]]); {LOAD}.",
    "engines": f"The plan `engines` is gone; {LOAD}.",
    "advice": "Advice on which decoder pays is gone; measure batches of size 1 instead, in the tab "
    "Batch or with the command `batch --sizes 1`: they have each decoder's speed over greedy's.",
    "energy": "Energy is that of the timings; a longer text is long enough for a coarse meter.",
}
MOST_TOKENS = 1_000_000
MOST_STEPS = 100  # branches of branches


@dataclass(frozen=True, slots=True)
class BranchStep:
    """One choice: where a text was left, and the token that it was continued with.

    Attributes:
        run: the id of the run
        decoder: the decoder whose text it is
        repeat: the repeat whose text it is, from 0
        at: tokens of the text that were kept
        chosen: the text of the token after them
    """

    run: str
    decoder: str
    repeat: int
    at: int
    chosen: str

    def __post_init__(self) -> None:
        texts, counts = (self.run, self.decoder, self.chosen), (self.repeat, self.at)
        sound = all(isinstance(text, str) for text in texts) and all(
            is_whole(count) and 0 <= count <= MOST_TOKENS for count in counts
        )
        refuse((not sound, "A step of a branch has a run, a decoder, a text and two numbers."))


@dataclass(frozen=True, slots=True)
class Start:
    """The tokens that a branch continues.

    Attributes:
        ids: the tokens of the prompt, those kept of the parent's text, and the chosen one; they are
            never tokenised again
        trail: the choices that led here, the first one first; the last one names the parent

    Raises:
        InputError: if there are too few or too many tokens or choices, or one is not a token id
    """

    ids: tuple[int, ...]
    trail: tuple[BranchStep, ...]

    def __post_init__(self) -> None:
        refuse(
            (
                not 0 < len(self.ids) <= MOST_TOKENS
                or not all(is_whole(i) and i >= 0 for i in self.ids),
                f"A branch continues a list of 1 to {MOST_TOKENS:,} token ids.",
            ),
            (
                not 0 < len(self.trail) <= MOST_STEPS,
                f"A branch has a parent, and at most {MOST_STEPS} ancestors; "
                "start a new run from its text.",
            ),
        )

    def to_json(self) -> dict[str, Any]:
        return {"ids": list(self.ids), "trail": [asdict(step) for step in self.trail]}

    @staticmethod
    def from_json(data: Any) -> "Start":
        try:
            return Start(tuple(data["ids"]), tuple(BranchStep(**step) for step in data["trail"]))
        except (TypeError, KeyError):
            raise InputError(
                "The start of a branch must have `ids` and a `trail`, as exports have them."
            ) from None


Keep = Literal["trace", "text", "lengths", "figures"]


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to time: a decoder over the prompts of a study, in batches of one size.

    Attributes:
        method: the decoder
        repeat: the number of the study's repeat, from 0
        seed: the seed of the first prompt; prompt i has seed + i
        batch_size: the most prompts in one batch
        scheme: a name of `SCHEMES`
        keep: the part of each prompt's result to keep: "trace" its tokens and rounds, "text" its
            tokens, "lengths" the tokens that each round gained, "figures" none of these
        ignore_eos: whether to continue after the end of a text
        max_cache_bytes: see `decoders.stream`
        prefill_chunk: see `decoders.stream`
    """

    method: Method
    repeat: int
    seed: int
    batch_size: int = 1
    scheme: str = ALONE
    keep: Keep = "trace"
    ignore_eos: bool = False
    max_cache_bytes: int | None = None
    prefill_chunk: int | None = None

    @property
    def batching(self) -> dict[str, Any]:
        return {
            "max_batch": self.batch_size,
            "padding": SCHEMES[self.scheme].padding,
            "ignore_eos": self.ignore_eos,
            "max_cache_bytes": self.max_cache_bytes,
            "prefill_chunk": self.prefill_chunk,
        }

    @property
    def reads_prompts_apart(self) -> bool:
        """Whether a batch reads all its prompts in its first round.

        If so, reading and decoding are timed apart.
        """
        unbounded = self.max_cache_bytes is None and self.prefill_chunk is None
        return SCHEMES[self.scheme].static and (self.batch_size == 1 or unbounded)


class Study(ABC):
    """The base of every kind of study: frozen plain data, which can cross into another process.

    Each kind is a frozen dataclass that extends this one. A kind's own settings are its fields with
    metadata, from which forms, flags and links take range and help.

    Attributes:
        kind: the name of the kind in runs, links and files
        usual: the shared settings whose default differs in this kind
        verb: the word on the button that runs it
        named: the name of its title among the facts of a run
        counts: the things that a limit on its prompts counts
        linked: the parameters of a link that only this kind reads
        by_decoder: whether a run has one row of figures for each decoder, instead of one for each
            decoder, batch size and scheme
        batches: whether its decoders run in batches, so that its figures describe them
        has_law: whether its texts are draws, which are compared with the target's exact law
        asks_engines: whether servers of other engines may be among its decoders
        settings: the decoders and the settings that they share
    """

    kind: ClassVar[str]
    usual: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    verb: ClassVar[str] = "Run"
    named: ClassVar[str] = "title"
    counts: ClassVar[str] = "prompts"
    linked: ClassVar[tuple[str, ...]] = ("prompt",)
    by_decoder: ClassVar[bool] = False
    batches: ClassVar[bool] = False
    has_law: ClassVar[bool] = False
    asks_engines: ClassVar[bool] = False

    settings: Settings

    @property
    @abstractmethod
    def title(self) -> str:
        """One line that tells this study from others of its kind."""

    @property
    @abstractmethod
    def prompts(self) -> Sequence[Prompt]:
        """The prompts to decode."""

    @abstractmethod
    def jobs(self) -> list[Job]:
        """The jobs to time, in order.

        Compared jobs run close together, so that a change of the machine affects all of them.
        """

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Plain data that `from_json` reads back; it holds the settings under "settings"."""

    @classmethod
    @abstractmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The study in data that `to_json` gave.

        Raises:
            InputError: if the data cannot be used
        """

    @classmethod
    def of_file(cls, data: Mapping[str, Any]) -> Self:
        """The study of a run in a file, which an older version may have written.

        Raises:
            InputError: if the data cannot be used
        """
        return cls.from_json(data)

    @classmethod
    def own(cls) -> list[Field]:
        return [f for f in fields(cast(Any, cls)) if f.metadata]

    @property
    def flat_settings(self) -> dict[str, Any]:
        return {**self.settings.to_json(), **{f.name: getattr(self, f.name) for f in self.own()}}

    @classmethod
    def split(cls, data: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
        """The shared settings, and the kind's own, in data that `to_json` gave.

        Raises:
            InputError: if the settings are not an object, a shared one cannot be used, or an engine
                is asked for: only comparisons ask engines
        """
        settings = data.get("settings")
        if not isinstance(settings, Mapping):
            raise InputError(
                f"The settings of a {cls.kind} must be one JSON object, not {quoted(settings)}."
            )
        names = {f.name for f in fields(cast(Any, cls))} - {"settings"}
        own = {name: value for name, value in settings.items() if name in names}
        shared = {name: value for name, value in settings.items() if name not in names}
        of_all = Settings.from_json({**cls.usual, **shared})
        if of_all.engines and not cls.asks_engines:
            raise InputError(
                f"A {cls.kind} asks no engines; leave out {of_all.engines[0].title}, or compare it "
                "on Compare."
            )
        return of_all, own

    # ---- links

    @classmethod
    def to_link(cls, data: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a link that only this kind has, without settings that have ranges.

        Args:
            data: the study, as `to_json` gives it
            start: the start of this kind's form, see `workbench.kinds.registry.to_query`
        """
        return {"prompt": prompts.written(data["prompt"])}

    @classmethod
    def from_link(
        cls, name: str, text: str, data: dict[str, Any], settings: dict[str, Any]
    ) -> None:
        """Write one of the parameters that `linked` names into `data` or `settings`.

        Args:
            data: the study so far, as `to_json` gives it

        Raises:
            InputError: if the value cannot be used
        """
        data[name] = prompts.typed(text)


@dataclass(frozen=True)
class Limits:
    """The largest study that this place runs, and who may wait for it.

    Attributes:
        public: whether strangers share this device (a Hugging Face Space)
        most: the largest values of settings that all decoders share, and the most prompts or draws;
            what is left out has no limit
        queue_size: the most visitors that may wait for the device
        custom_models: whether pairs outside the presets may be loaded
    """

    public: bool = False
    most: Mapping[str, int] = field(default_factory=dict)
    queue_size: int = 32
    custom_models: bool = True

    @staticmethod
    def from_environment(environ: Mapping[str, str] = os.environ) -> "Limits":
        """The limits of this process.

        Args:
            environ: SYSTEM=spaces or SPACE_ID mean a Space; WORKBENCH_MAX_TOKENS, WORKBENCH_QUEUE
                and ALLOW_CUSTOM_MODELS=1 change its limits

        Raises:
            InputError: if a variable is not a whole number of at least 1
        """
        public = environ.get("SYSTEM") == "spaces" or bool(environ.get("SPACE_ID"))
        usual = PUBLIC if public else Limits()
        tokens = count_of(environ, "WORKBENCH_MAX_TOKENS", usual.most.get("max_new_tokens"))
        return replace(
            usual,
            most={**usual.most, "max_new_tokens": tokens} if tokens else usual.most,
            queue_size=count_of(environ, "WORKBENCH_QUEUE", usual.queue_size),
            custom_models=not public or environ.get("ALLOW_CUSTOM_MODELS") == "1",
        )

    def check(self, study: Study) -> None:
        counts = {**vars(study.settings), study.counts: len(study.prompts)}
        for name, most in self.most.items():
            if counts.get(name, 0) > most:
                what = name.removeprefix("max_").replace("_", " ")
                raise InputError(
                    f"At most {most} {what} here; ask for fewer, or run it on your own machine."
                )


MOST = {"max_new_tokens": 256, "repeats": 5, "timings": 3, "prompts": 24, "draws": 200}
PUBLIC = Limits(public=True, most=MOST)


def count_of(environ: Mapping[str, str], name: str, default: Any) -> Any:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{name} must be a whole number of at least 1, not {quoted(text)}.")
    return int(text)
