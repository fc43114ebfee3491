"""Tests a served model: its draws against the law, its greedy texts against ours (watch)."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal

import decoders
from decoders import Divergence, InputError, ModelPair
from decoders.errors import allowed, refuse, whole
from decoders.greedy import DTYPES
from decoders.inputs import as_seed, encode
from workbench.engines import counters
from workbench.engines.canary import law
from workbench.engines.canary.draws import LEVEL, Check, WrongRule, checks, controls
from workbench.engines.canary.law import Ids
from workbench.engines.client import Client
from workbench.engines.record import Query, Record, Speculation, plain

PREFIXES = (
    "Once upon a time",
    "One day, a little girl",
    "The old man looked at the sea and",
    "It was raining, so they",
)
MOST_DRAWS, MOST_TOKENS, MOST_AT_ONCE = 1_000_000, 64, 256
GREEDY = 32  # tokens of a greedy text
CAUGHT = 0.99  # of the made-up wrong rules, for draws without a finding to mean anything

Told = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Watch:
    """What a canary asks.

    Attributes:
        prefixes: texts that are continued
        draws: texts drawn, the same number after each prefix
        tokens: tokens of each draw; two more than the server's draft length reach the token after a
            whole draft
        seed: of the first draw; the next one has seed + 1
        at_once: requests at the same time
        dtype: the number type of the server's model, for the verdict on greedy texts; "auto" is
            that of the model here

    Raises:
        InputError: for values out of range
    """

    prefixes: tuple[str, ...] = PREFIXES
    draws: int = 2000
    tokens: int = 6
    seed: int = 0
    at_once: int = 8
    dtype: str = "auto"

    def __post_init__(self) -> None:
        whole("draws", self.draws, MOST_DRAWS)
        whole("tokens", self.tokens, MOST_TOKENS)
        whole("at_once", self.at_once, MOST_AT_ONCE)
        allowed("dtype", self.dtype, choices=DTYPES)
        as_seed(self.seed)
        refuse(
            (not self.prefixes, "Give at least one text to continue."),
            (
                len(set(self.prefixes)) < len(self.prefixes),
                "A text to continue is given twice; give each once.",
            ),
        )


@dataclass(frozen=True)
class GreedyText:
    """A greedy text of the server beside ours.

    Attributes:
        prefix: the text that both continue
        divergence: where they part, and why
    """

    prefix: str
    divergence: Divergence


@dataclass(frozen=True)
class CanaryReport:
    """What a canary found.

    Attributes:
        engine: the engine's name
        kind: its dialect
        model: the model that it serves, in its own words
        draws: texts that it drew, of those asked for
        asked: texts asked for
        checks: the tests of its draws
        controls: whether they would have found wrong rules
        greedy: its greedy texts
        dtype: the number type in which rounding was measured for them
        speculation: counts of its draft tokens over all draws; None if it tells none
        note: why draws are missing; "" if none are
    """

    engine: str
    kind: str
    model: str | None
    draws: int
    asked: int
    checks: tuple[Check, ...]
    controls: tuple[WrongRule, ...]
    greedy: tuple[GreedyText, ...]
    dtype: str
    speculation: Speculation | None
    note: str

    @property
    def unlike(self) -> bool:
        """Whether the draws refute the law."""
        return any(check.p < LEVEL for check in self.checks)

    @property
    def verdict(self) -> Literal["unlike", "fault", "like", "cannot tell"]:
        """ "like" needs a control that the same tests, with as many draws, did find."""
        if self.unlike:
            return "unlike"
        if any(text.divergence.verdict == "fault" for text in self.greedy):
            return "fault"
        strong = all(c.caught >= CAUGHT * c.times for c in self.controls)
        return "like" if strong and self.controls else "cannot tell"

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, with its verdict and level."""
        return {**plain(asdict(self)), "verdict": self.verdict, "level": LEVEL}


def watch(
    client: Client,
    pair: ModelPair,
    what: Watch,
    told: Told = lambda words, done, total: None,
    stopped: Callable[[], bool] = lambda: False,
) -> CanaryReport:
    """Test a server.

    Args:
        client: asks it; its answers must have token ids
        pair: the model that it should serve
        what: what is asked
        told: called with what is done, how much of it, and of how much
        stopped: whether to draw no more, and to test what has come

    Raises:
        InputError: if the server cannot be tested; if it fails after some draws, these are tested
    """
    prefixes = {
        words: tuple(encode(words, pair.tokenizer, pair.vocabulary)) for words in what.prefixes
    }
    greedy = []
    for done, (words, ids) in enumerate(prefixes.items()):
        told("greedy texts", done, len(prefixes))
        greedy.append(GreedyText(words, _greedy(client, pair, ids, what)))
    before = client.counted()
    texts, spoken, note = _drawn(client, pair, list(prefixes.values()), what, told, stopped)
    counted = counters.between(before, client.counted())
    draws = law.read(pair, texts, lambda done: told("law of the model", done, len(texts)))
    return CanaryReport(
        client.wire.engine.name,
        client.dialect.kind,
        client.model,
        len(texts),
        what.draws,
        tuple(checks(draws)),
        tuple(controls(draws, what.seed)),
        tuple(greedy),
        what.dtype,
        spoken or counted,
        note,
    )


def _greedy(client: Client, pair: ModelPair, prefix: Ids, what: Watch) -> Divergence:
    """The server's greedy text beside ours."""
    record = client.ask(Query(prefix, GREEDY, temperature=0.0, seed=what.seed, stream=False))
    ours = decoders.generate(pair, list(prefix), "greedy", max_new_tokens=GREEDY).tokens
    theirs = list(_tokens(record, pair))
    return decoders.compare_greedy(pair, list(prefix), ours, theirs, dtype=what.dtype)


def _tokens(record: Record, pair: ModelPair) -> Ids:
    """The tokens of an answer, with the one that ended it.

    Raises:
        InputError: if they are not told, or not of this model
    """
    if record.tokens is None:
        raise InputError(
            f"Engine {record.engine} does not tell the ids of its tokens, so its draws cannot be "
            "compared with the law."
        )
    ids, last = list(record.tokens), max(record.tokens)
    refuse(
        (
            last >= pair.vocabulary,
            f"Engine {record.engine} wrote the token {last}, which the model here does not have; "
            "load the model that it serves.",
        )
    )
    if record.finished == "stop" and ids[-1] not in pair.end_tokens:
        ends = sorted(pair.end_tokens)
        refuse(
            (
                len(ends) != 1,
                f"Engine {record.engine} ended a text without saying with which token; give "
                "prefixes after which no text ends.",
            )
        )
        ids += ends
    return tuple(ids)


def _drawn(
    client: Client,
    pair: ModelPair,
    prefixes: Sequence[Ids],
    what: Watch,
    told: Told,
    stopped: Callable[[], bool],
) -> tuple[list[tuple[Ids, Ids]], Speculation | None, str]:
    """The draws, the sum of what they tell of draft tokens, and why some are missing."""
    texts: list[tuple[Ids, Ids]] = []
    spoken: list[Speculation] = []

    def draw(number: int) -> tuple[Ids, Record]:
        prefix = prefixes[number % len(prefixes)]
        record = client.ask(Query(prefix, what.tokens, seed=what.seed + number, stream=False))
        refuse((record.note, record.note))
        return prefix, record

    note = ""
    pool = ThreadPoolExecutor(what.at_once)
    try:
        for prefix, record in pool.map(draw, range(what.draws)):
            texts.append((prefix, _tokens(record, pair)))
            spoken += [record.speculation] if record.speculation else []
            told("draws", len(texts), what.draws)
            refuse((stopped(), "Stopped."))
    except InputError as error:
        if not texts:
            raise
        note = str(error)
    finally:
        pool.shutdown(cancel_futures=True)
    return texts, _sum(spoken), note


def _sum(counts: Sequence[Speculation]) -> Speculation | None:
    if not counts:
        return None
    steps = [each.steps for each in counts if each.steps is not None]
    return Speculation(
        sum(each.drafted for each in counts),
        sum(each.accepted for each in counts),
        sum(steps) if len(steps) == len(counts) else None,
    )
