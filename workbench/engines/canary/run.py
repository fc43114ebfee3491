"""Tests a served model: its draws against the law, its greedy texts against ours (watch)."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import decoders
from decoders import Divergence, InputError, ModelPair
from decoders.errors import allowed, refuse, whole
from decoders.greedy import DTYPES
from decoders.inputs import as_seed
from decoders.prompts import encode
from workbench.engines import counters
from workbench.engines.canary import law
from workbench.engines.canary.draws import checks, controls
from workbench.engines.canary.report import CanaryReport, GreedyText
from workbench.engines.canary.spelling import Ids, Spelling, drawn_tokens
from workbench.engines.client import Client
from workbench.engines.record import Query, Record, Speculation

PREFIXES = (
    "Once upon a time",
    "One day, a little girl",
    "The old man looked at the sea and",
    "It was raining, so they",
)
MOST_DRAWS, MOST_TOKENS, MOST_AT_ONCE = 1_000_000, 64, 256
GREEDY = 32  # tokens of a greedy text

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
class _Prefix:
    """A text to continue, and its token ids."""

    words: str
    ids: Ids


def watch(
    client: Client,
    pair: ModelPair,
    what: Watch,
    told: Told = lambda words, done, total: None,
    stopped: Callable[[], bool] = lambda: False,
) -> CanaryReport:
    """Test a server. If it tells no token ids, only first tokens are tested, by their texts.

    Args:
        client: asks it
        pair: the model that it should serve
        what: what is asked
        told: called with what is done, how much of it, and of how much
        stopped: whether to draw no more, and to test what has come

    Raises:
        InputError: if the server cannot be tested; if it fails after some draws, these are tested
    """
    encoded = [encode(words, pair.tokenizer, pair.vocabulary).ids for words in what.prefixes]
    prefixes = [_Prefix(*each) for each in zip(what.prefixes, map(tuple, encoded), strict=True)]
    greedy, spelling = [], None
    for done, prefix in enumerate(prefixes):
        told("greedy texts", done, len(prefixes))
        record = client.ask(_query(client, prefix, GREEDY, what.seed, temperature=0.0))
        greedy.append(GreedyText(prefix.words, _compared(record, pair, prefix, what)))
        if record.tokens is None and spelling is None:
            spelling, what = Spelling.of(pair), replace(what, tokens=1)
    before = client.counted()
    texts, spoken, note = _drawn(client, pair, prefixes, what, spelling, told, stopped)
    counted = counters.between(before, client.counted())
    draws = law.read(pair, texts, spelling, lambda n: told("law of the model", n, len(texts)))
    return CanaryReport(
        engine=client.wire.engine.name,
        kind=client.dialect.kind,
        model=client.shown_model,
        draws=len(texts),
        asked=what.draws,
        checks=tuple(checks(draws)),
        controls=tuple(controls(draws, what.seed)),
        greedy=tuple(greedy),
        dtype=what.dtype,
        by_text=spelling is not None,
        speculation=spoken or counted,
        note=note,
    )


def _query(
    client: Client, prefix: _Prefix, tokens: int, seed: int, temperature: float = 1.0
) -> Query:
    prompt = prefix.ids if client.dialect.takes_ids else prefix.words
    return Query(prompt, tokens, temperature, seed, stream=False)


def _compared(record: Record, pair: ModelPair, prefix: _Prefix, what: Watch) -> Divergence:
    """The server's greedy text beside ours."""
    ours = decoders.generate(pair, list(prefix.ids), "greedy", max_new_tokens=GREEDY)
    if record.tokens is None:
        return decoders.compare_greedy(pair, prefix.words, ours.text, record.text, dtype=what.dtype)
    theirs = list(drawn_tokens(record, pair, None))
    return decoders.compare_greedy(pair, list(prefix.ids), ours.tokens, theirs, dtype=what.dtype)


def _drawn(
    client: Client,
    pair: ModelPair,
    prefixes: Sequence[_Prefix],
    what: Watch,
    spelling: Spelling | None,
    told: Told,
    stopped: Callable[[], bool],
) -> tuple[list[tuple[Ids, Ids]], Speculation | None, str]:
    """The draws, the sum of what they tell of draft tokens, and why some are missing."""
    texts: list[tuple[Ids, Ids]] = []
    spoken: list[Speculation] = []

    def draw(number: int) -> tuple[Ids, Record]:
        prefix = prefixes[number % len(prefixes)]
        record = client.ask(_query(client, prefix, what.tokens, what.seed + number))
        refuse((record.note, record.note))
        return prefix.ids, record

    note = ""
    pool = ThreadPoolExecutor(what.at_once)
    try:
        for prefix, record in pool.map(draw, range(what.draws)):
            texts.append((prefix, drawn_tokens(record, pair, spelling)))
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
