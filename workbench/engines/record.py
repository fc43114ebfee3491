"""One request to a server, in terms that are the same for every engine (Record)."""

from dataclasses import dataclass
from typing import Any

from decoders.errors import InputError

Prompt = tuple[int, ...] | str


@dataclass(frozen=True)
class Query:
    """What a server is asked for: one text.

    Attributes:
        prompt: token ids; as text for servers that take no ids
        max_tokens: the most new tokens
        temperature: 0 takes the likeliest token, 1 keeps the model's distribution; no penalty is
            applied
        seed: of the server's random numbers
        stream: whether tokens are sent as they are made; without it, only the total time is known
        top_k: see `decoders.Warping`, as for those below; by default nothing is cut off
        top_p: the same
        min_p: the same
        top_n_sigma: the same
        temperature_last: the same
    """

    prompt: Prompt
    max_tokens: int
    temperature: float = 1.0
    seed: int = 0
    stream: bool = True
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    top_n_sigma: float = 0.0
    temperature_last: bool = False

    @property
    def likeliest(self) -> "Query":
        """The same without what makes no difference: at temperature 0, nothing is left to cut."""
        if self.temperature:
            return self
        return Query(self.prompt, self.max_tokens, 0.0, self.seed, self.stream)

    @property
    def cuts(self) -> frozenset[str]:
        """The fields that change the distribution, besides the temperature."""
        usual = Query("", 1)
        names = {"top_k", "top_p", "min_p", "top_n_sigma"}
        found = {name for name in names if getattr(self, name) != getattr(usual, name)}
        if self.temperature_last and self.temperature != 1 and found & {"top_p", "min_p"}:
            found.add("temperature_last")
        return frozenset(found)


@dataclass(frozen=True)
class Speculation:
    """What became of the draft tokens.

    In every count, an accepted token is a draft token that was kept. The token that the target
    adds after them, instead of a refused one or after the last, is not counted: each verification
    writes one token more than it accepts.

    Attributes:
        drafted: draft tokens
        accepted: those of them that were kept
        steps: verifications, each of one draft; None if the engine does not count them
        histogram: number of the steps that accepted 0, 1, 2, … tokens; empty if it is not known
        per_step: drafted and accepted tokens of each step in order; empty if they are not known

    Raises:
        InputError: for counts that contradict each other
    """

    drafted: int
    accepted: int
    steps: int | None = None
    histogram: tuple[int, ...] = ()
    per_step: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        kept, counted = sum(i * n for i, n in enumerate(self.histogram)), sum(self.histogram)
        wrong = (
            not 0 <= self.accepted <= self.drafted
            or (self.steps is not None and self.steps < bool(self.drafted))
            or (self.histogram and (kept, counted) != (self.accepted, self.steps))
            or any(not 0 <= accepted <= drafted for drafted, accepted in self.per_step)
            or (self.per_step and sum(x for _, x in self.per_step) != self.accepted)
        )
        if wrong:
            raise InputError("The server's counts of draft tokens contradict each other.")

    @property
    def length(self) -> float | None:
        """Mean tokens written by a verification, the target's included."""
        return 1 + self.accepted / self.steps if self.steps else None


@dataclass(frozen=True)
class Chunk:
    """A piece of an answer, as it arrives.

    Attributes:
        text: the text that it adds
        ids: the token ids that it adds; None if the server does not tell them
        count: tokens of the answer so far, where they are counted
        finished: why the answer ended, "" if it did not say; None before the end
        speculation: told once, mostly at the end
        model: the model that answers, if it is named
    """

    text: str = ""
    ids: tuple[int, ...] | None = None
    count: int | None = None
    finished: str | None = None
    speculation: Speculation | None = None
    model: str | None = None


@dataclass(frozen=True)
class Record:
    """A request and its answer.

    Attributes:
        engine: the engine's name, as whoever runs the workbench has named it
        kind: the dialect that it speaks
        model: the model that answered, in its own words
        asked: when it was asked, UTC, ISO 8601
        text: the new text
        tokens: the ids of the new tokens; None if not every one was told
        count: number of new tokens; None if it is not known
        arrivals: for each piece that arrived the seconds since it was asked, and its tokens, None
            if they are not known; a speculative engine sends several tokens at once
        seconds: from the request to the end of the answer
        finished: "length", "stop", …; None if the answer was cut off
        speculation: what became of draft tokens; None if nothing is told
        note: one sentence about an answer that was cut off; "" if it is whole
    """

    engine: str
    kind: str
    model: str | None
    asked: str
    text: str
    tokens: tuple[int, ...] | None
    count: int | None
    arrivals: tuple[tuple[float, int | None], ...]
    seconds: float
    finished: str | None
    speculation: Speculation | None = None
    note: str = ""

    @property
    def first(self) -> float | None:
        """Seconds to the first token; None if none came."""
        return self.arrivals[0][0] if self.arrivals else None

    @property
    def times(self) -> list[float] | None:
        """The seconds at which each token arrived; None if the tokens of a piece are not known."""
        if any(tokens is None for _, tokens in self.arrivals):
            return None
        return [at for at, tokens in self.arrivals for _ in range(tokens or 0)]


def plain(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value
