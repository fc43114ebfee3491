"""Whether a served model keeps its law: its draws against the law, greedy against greedy (watch).

A server's draws visit many places, each with another law, too seldom to test each law by itself. So
the vocabulary of each place is divided into the same few cells: tokens by their rank under the law,
and those that the draft likes better than the target apart from the others. Given the tokens before
it, a drawn token lies in each cell with a chance that is known exactly. The sums of counts over
places have the sums of chances as their means, and a covariance that is the sum over places, since
a draw's surprise is uncorrelated with all that was drawn before.

Wrong rules show in these cells: what refuses too few drafts has too many tokens that the draft
likes better, a wrong temperature or a cut-off has too many of the first ranks.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

import decoders
from decoders import Divergence, InputError, ModelPair, Warping
from decoders.divergence import DTYPES
from decoders.errors import allowed, refuse, whole
from decoders.inputs import as_seed, encode
from workbench.engines.client import Client
from workbench.engines.record import Prompt, Query, Record, Speculation, plain

PREFIXES = ("Once upon a time", "One day, a little girl", "The old man looked at the sea and",
            "It was raining, so they")  # fmt: skip
MOST_DRAWS, MOST_TOKENS, MOST_AT_ONCE = 1_000_000, 64, 256
GREEDY = 32  # tokens of a greedy text
BANDS = (1, 3, 8, 32)  # last ranks of the bands, counted from 1; the tokens below are one more band
# The least variance of a cell's count; rarer cells are merged. A normal distribution is then close.
LEAST = 20.0
LEVEL = 1e-3  # the chance that a server that keeps the law is called unlike it
SOUGHT = 0.1  # the total variation of the wrong rules that the control makes up
CAUGHT = 0.99  # of these, for draws without a finding to mean anything
TEXTS_AT_ONCE = 16  # that are read as branches of one tree
MADE_AT_ONCE = 2**18  # made-up tokens; those of all repetitions may not fit into memory

Ids = tuple[int, ...]
Doing = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of cells, (..., cells), with their means and covariance under the law.

    The axes before the last one are independent repetitions.
    """

    observed: np.ndarray
    expected: np.ndarray
    covariance: np.ndarray

    def statistic(self) -> tuple[np.ndarray, int]:
        """The chi-square statistic of each repetition, (...), and its degrees of freedom.

        It is Pearson's where all places have the same chances.
        """
        merge = merging(self.covariance)
        off = (self.observed - self.expected) @ merge.T
        covariance = merge @ self.covariance @ merge.T
        # The counts sum to a constant, so one direction, or more, has no variance.
        tolerance = 1e-6 * float(np.diag(covariance).max(initial=0.0))
        values, vectors = np.linalg.eigh(covariance)
        varies = values > max(tolerance, 1e-12)
        scaled = (off @ vectors[:, varies]) / np.sqrt(values[varies])
        return (scaled**2).sum(axis=-1), int(varies.sum())


def merging(covariance: np.ndarray) -> np.ndarray:
    """Which cells are counted together, (merged, cells) of 0 and 1.

    The rarest joins the next rarest until the count of each varies by LEAST. It depends on the law
    alone, never on the draws.
    """
    merge = np.eye(len(covariance))
    while len(merge) > 1:
        variance = np.einsum("ic,cd,id->i", merge, covariance, merge)
        first, second = np.argsort(variance, kind="stable")[:2]
        if variance[first] >= LEAST:
            break
        merge[second] += merge[first]
        merge = np.delete(merge, first, axis=0)
    return merge


def p_value(statistic: np.ndarray, degrees: int) -> np.ndarray:
    """The chance of a chi-square statistic at least as large; 1 where nothing varies."""
    if not degrees:
        return np.ones_like(statistic)
    half = torch.as_tensor(np.asarray(statistic) / 2, dtype=torch.float64)
    return torch.special.gammaincc(torch.full_like(half, degrees / 2), half).numpy()


def tally(cells: np.ndarray, chances: np.ndarray) -> Tally:
    """The counts of draws, (..., places), with the chances at each place, (places, cells)."""
    expected = chances.sum(axis=0)
    observed = np.stack([(cells == cell).sum(axis=-1) for cell in range(chances.shape[1])], axis=-1)
    return Tally(observed, expected, np.diag(expected) - chances.T @ chances)


def one_place(law: np.ndarray, counts: np.ndarray) -> Tally:
    """The counts of the tokens drawn at one place, (V,), each frequent one in a cell of its own."""
    draws = counts.sum()
    frequent = np.argsort(-law, kind="stable")[: int((draws * law * (1 - law) >= LEAST).sum())]
    chances = np.append(law[frequent], max(0.0, 1 - law[frequent].sum()))
    observed = np.append(counts[frequent], draws - counts[frequent].sum())
    covariance = np.diag(draws * chances) - draws * np.outer(chances, chances)
    return Tally(observed, draws * chances, covariance)


def labels(p: torch.Tensor, q: torch.Tensor | None) -> torch.Tensor:
    """The cell of each token under the law and, if there is one, the draft's; (places, V)."""
    top = p.topk(min(BANDS[-1], p.shape[-1]), dim=-1).values
    bands = [p < top[:, last - 1 : last] for last in BANDS if last <= top.shape[-1]]
    return sum(bands, torch.zeros_like(p, dtype=torch.int64)) + (
        0 if q is None else (len(BANDS) + 1) * (q > p)
    )


def shares(law: torch.Tensor, labels: torch.Tensor, drafted: bool) -> torch.Tensor:
    """The chance of each cell under a law of tokens, (places, cells)."""
    cells = (len(BANDS) + 1) * (1 + drafted)
    chances = torch.zeros(len(law), cells, dtype=torch.float64, device=law.device)
    return chances.scatter_add_(1, labels, law.double())


@dataclass(frozen=True, eq=False)
class Draws:
    """Tokens that a server drew.

    Attributes:
        position: the place of each token in its text, from 0, (N,)
        cells: its cell, (..., N)
        chances: the chances of all cells there under the law, (N, cells)
        starts: the counts of first tokens after each prefix; empty for draws that are made up
        others: by the names of wrong rules, the chances under them, and their total variations from
            the law at each place, (N,)
    """

    position: np.ndarray
    cells: np.ndarray
    chances: np.ndarray
    starts: tuple[Tally, ...] = ()
    others: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


def joined(pieces: Sequence[Draws]) -> Draws:
    """The draws of all pieces, which have the same wrong rules."""

    def one(name: str) -> np.ndarray:
        return np.concatenate([getattr(d, name) for d in pieces])

    others = {
        name: (
            np.concatenate([d.others[name][0] for d in pieces]),
            np.concatenate([d.others[name][1] for d in pieces]),
        )
        for name in pieces[0].others
    }
    starts = tuple(start for d in pieces for start in d.starts)
    return Draws(one("position"), one("cells"), one("chances"), starts, others)


@dataclass(frozen=True)
class Check:
    """One chi-square test of some drawn tokens; p is multiplied by the number of tests."""

    name: str
    tokens: int
    statistic: float
    degrees: int
    p: float


def _tests(draws: Draws) -> Iterator[tuple[str, int, np.ndarray, int]]:
    """Each test's name, its tokens, the statistic of each repetition, and degrees of freedom."""
    last = int(draws.position.max(initial=-1))
    if draws.starts:
        each, degrees = zip(*(start.statistic() for start in draws.starts), strict=True)
        count = int((draws.position == 0).sum())
        yield "first token, after each prefix", count, np.sum(each, axis=0), sum(degrees)
    chosen = [(f"token {i + 1}", draws.position == i) for i in range(last + 1)]
    if last > 1:
        chosen.append((f"tokens 2 to {last + 1} together", draws.position > 0))
    for name, at in chosen:
        yield name, int(at.sum()), *tally(draws.cells[..., at], draws.chances[at]).statistic()


def checks(draws: Draws) -> list[Check]:
    """All tests; the draws are unlike the law if any p is below LEVEL (Bonferroni)."""
    tests = list(_tests(draws))
    return [
        Check(name, tokens, float(x), degrees, min(1.0, len(tests) * float(p_value(x, degrees))))
        for name, tokens, x, degrees in tests
    ]


def unlike(draws: Draws) -> np.ndarray:
    """Whether each repetition is unlike the law, (...)."""
    tests = list(_tests(draws))
    return np.any([len(tests) * p_value(x, degrees) < LEVEL for *_, x, degrees in tests], axis=0)


@dataclass(frozen=True)
class WrongRule:
    """A negative control: how often made-up draws of a wrong rule at the same places were found.

    `variation` is its mean total variation from the law, over the tokens that it writes.
    """

    name: str
    variation: float
    caught: int
    times: int


def controls(draws: Draws, seed: int, times: int = 100) -> list[WrongRule]:
    """Whether these tests, with as many draws, find rules that are off by SOUGHT.

    The first tokens are right, as those of a speculative server are, which come from the pass over
    the prompt. After them the law is mixed with a wrong one.
    """
    source, later, rules = np.random.default_rng(seed), draws.position > 0, []
    later = later if later.any() else draws.position == 0
    for name, (other, distance) in draws.others.items():
        off = float(distance[later].mean())
        share = min(1.0, SOUGHT / off) if off else 0.0
        mixed = (1 - share) * draws.chances + share * other
        chances = np.where(later[:, None], mixed, draws.chances)
        samples = (
            Draws(draws.position, cells, draws.chances)
            for cells in _sampled(chances, times, source)
        )
        rules.append(
            WrongRule(name, share * off, sum(int(unlike(d).sum()) for d in samples), times)
        )
    return rules


def _sampled(chances: np.ndarray, times: int, source: np.random.Generator) -> Iterator[np.ndarray]:
    """Cells drawn at each place, (some, places), until there are so many of each."""
    some = max(1, MADE_AT_ONCE // max(1, len(chances)))
    upper = chances.cumsum(axis=1)
    upper /= upper[:, -1:]
    for begin in range(0, times, some):
        uniform = source.random((min(some, times - begin), len(chances)))
        yield (uniform[..., None] >= upper[:, :-1]).sum(axis=-1)


def tokens_of(record: Record, pair: ModelPair) -> Ids:
    """The tokens of an answer, with the one that ended it.

    Raises:
        InputError: if they are not told, or are not of this model
    """
    who = f"Engine {record.engine}"
    if record.tokens is None:
        raise InputError(
            f"{who} does not tell token ids, without which its draws cannot be tested; vLLM, "
            "SGLang and llama.cpp tell them."
        )
    last, ends = max(record.tokens), sorted(pair.end_tokens)
    ended = record.finished == "stop" and record.tokens[-1] not in ends
    refuse(
        (
            last >= pair.vocabulary,
            f"{who} wrote the token {last}, which the model here does not have; load the model "
            "that it serves.",
        ),
        (
            ended and len(ends) != 1,
            f"{who} ended a text without saying with which token; give prefixes after which no "
            "text ends.",
        ),
    )
    return (*record.tokens, *(ends if ended else ()))


def read(
    pair: ModelPair,
    draws: Sequence[tuple[Ids, Ids]],
    doing: Callable[[int], None] = lambda texts: None,
) -> Draws:
    """The draws, with the chances that the target gives them at temperature 1.

    If the pair has a draft, this makes the cells finer. `draws` has prefixes and the texts that
    followed them; `doing` hears how many of these have been read.
    """
    pieces, done = list[Draws](), 0
    for prefix in dict.fromkeys(prefix for prefix, _ in draws):
        times = Counter(text for start, text in draws if start == prefix)
        texts = sorted(times)  # those in order share their beginnings, which are read once
        for begin in range(0, len(texts), TEXTS_AT_ONCE):
            some = texts[begin : begin + TEXTS_AT_ONCE]
            places = decoders.read(pair, list(prefix), [list(text[:-1]) for text in some])
            drafts = [each.q for each in places if each.q is not None]
            p, q = torch.cat([each.p for each in places]), torch.cat(drafts) if drafts else None
            piece = _draws(p, q, some, [times[text] for text in some])
            if not begin:
                first = np.bincount([t[0] for t in times], [*times.values()], len(p[0]))
                piece = replace(piece, starts=(one_place(p[0].double().cpu().numpy(), first),))
            pieces.append(piece)
            doing(done := done + sum(times[text] for text in some))
    return joined(pieces)


def _draws(
    p: torch.Tensor, q: torch.Tensor | None, texts: Sequence[Ids], times: Sequence[int]
) -> Draws:
    """The draws of some texts, each drawn `times`; p and q: the laws before their every token."""
    cell = labels(p, q)
    tokens = torch.tensor([token for text in texts for token in text], device=p.device)
    again = np.repeat(times, [len(text) for text in texts])

    def repeated(values: torch.Tensor) -> np.ndarray:
        return np.repeat(values.cpu().numpy(), again, axis=0)

    wrong = {} if q is None else {"keeps drafts that it should refuse": q}
    wrong["takes the likeliest token too often"] = torch.zeros_like(p).scatter_(
        1, p.argmax(-1, keepdim=True), 1.0
    )
    return Draws(
        np.repeat([i for text in texts for i in range(len(text))], again),
        repeated(cell.gather(1, tokens[:, None])[:, 0]),
        repeated(shares(p, cell, q is not None)),
        others={
            name: (
                repeated(shares(law, cell, q is not None)),
                repeated((law.double() - p.double()).abs().sum(-1) / 2),
            )
            for name, law in wrong.items()
        },
    )


@dataclass(frozen=True)
class CanaryPlan:
    """What a canary asks: texts of a few tokens after each prefix, seeds counting up.

    Two tokens more than the server's draft length reach the token after a whole draft. `dtype` is
    the number type of the server's model, for greedy texts; "auto" is that of the model here.
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
        twice = len(set(self.prefixes)) < len(self.prefixes)
        refuse(
            (not self.prefixes, "Give at least one text to continue."),
            (twice, "A text to continue is given twice; give each once."),
        )


@dataclass(frozen=True)
class GreedyText:
    """A greedy text of the server beside ours, after a prefix: where they part, and why."""

    prefix: str
    divergence: Divergence


@dataclass(frozen=True)
class CanaryReport:
    """What a canary found of an engine, its dialect and the model that it serves.

    Of the `wanted` draws some may be missing: `note` says why.
    """

    engine: str
    kind: str
    model: str | None
    draws: int
    wanted: int
    checks: tuple[Check, ...]
    controls: tuple[WrongRule, ...]
    greedy: tuple[GreedyText, ...]
    dtype: str
    speculation: Speculation | None
    note: str

    @property
    def verdict(self) -> str:
        """ "unlike", "fault", "cannot tell", or "like", which needs a control that was found."""
        if any(check.p < LEVEL for check in self.checks):
            return "unlike"
        if any(text.divergence.verdict == "fault" for text in self.greedy):
            return "fault"
        strong = all(c.caught >= CAUGHT * c.times for c in self.controls)
        return "like" if strong and self.controls else "cannot tell"

    def to_json(self) -> dict[str, Any]:
        return {**plain(asdict(self)), "verdict": self.verdict, "level": LEVEL}


def watch(
    client: Client,
    pair: ModelPair,
    what: CanaryPlan,
    doing: Doing = lambda words, done, total: None,
    stopped: Callable[[], bool] = lambda: False,
) -> CanaryReport:
    """Test a server that should serve the pair's target.

    `doing` hears what is done, how much of it, and of how much. Whoever is `stopped`, or a server
    that fails after some draws, has these tested.

    Raises:
        InputError: if the server cannot be tested
    """
    greedy, prompts = list[GreedyText](), list[tuple[Ids, Prompt]]()
    for done, words in enumerate(what.prefixes):
        doing("greedy texts", done, len(what.prefixes))
        ids = tuple(encode(words, pair.tokenizer, pair.vocabulary).ids)
        prompts.append((ids, ids if client.dialect.takes_ids else words))
        record = client.ask(Query(prompts[-1][1], GREEDY, Warping(0.0), what.seed, stream=False))
        theirs = list(tokens_of(record, pair))
        ours = decoders.generate(pair, list(ids), "greedy", max_new_tokens=GREEDY).tokens
        parts = decoders.compare_greedy(pair, list(ids), ours, theirs, dtype=what.dtype)
        greedy.append(GreedyText(words, parts))
    texts, counts, note = _drawn(client, pair, prompts, what, doing, stopped)
    draws = read(pair, texts, lambda n: doing("law of the model", n, len(texts)))
    return CanaryReport(
        client.wire.engine.name, client.dialect.kind, client.shown_model, len(texts), what.draws,
        tuple(checks(draws)), tuple(controls(draws, what.seed)), tuple(greedy), what.dtype,
        together(counts) if counts else None, note,
    )  # fmt: skip


def _drawn(
    client: Client, pair: ModelPair, prompts: Sequence[tuple[Ids, Prompt]], what: CanaryPlan,
    doing: Doing, stopped: Callable[[], bool],
) -> tuple[list[tuple[Ids, Ids]], list[Speculation], str]:  # fmt: skip
    """The draws, what they tell of draft tokens, and why some are missing."""
    texts, counts, note = list[tuple[Ids, Ids]](), list[Speculation](), ""

    def draw(number: int) -> tuple[Ids, Record]:
        ids, prompt = prompts[number % len(prompts)]
        record = client.ask(Query(prompt, what.tokens, seed=what.seed + number, stream=False))
        refuse((record.note, record.note))
        return ids, record

    pool = ThreadPoolExecutor(what.at_once)
    try:
        for ids, record in pool.map(draw, range(what.draws)):
            texts.append((ids, tokens_of(record, pair)))
            counts += [record.speculation] if record.speculation else []
            doing("draws", len(texts), what.draws)
            refuse((stopped(), "Stopped."))
    except InputError as error:
        if not texts:
            raise
        note = str(error)
    finally:
        pool.shutdown(cancel_futures=True)
    return texts, counts, note


def together(counts: Sequence[Speculation]) -> Speculation:
    """The sum of counts of draft tokens."""
    steps = [each.steps for each in counts if each.steps is not None]
    return Speculation(
        sum(each.drafted for each in counts), sum(each.accepted for each in counts),
        sum(steps) if len(steps) == len(counts) else None,
    )  # fmt: skip
