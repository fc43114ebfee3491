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

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

import decoders
from decoders import Divergence, ModelPair, Warping
from decoders.divergence import DTYPES
from decoders.errors import allowed, refuse, whole
from decoders.inputs import as_seed, encode
from workbench.engines.client import Client
from workbench.engines.dialects import Prompt, Query

PREFIXES = ("Once upon a time", "One day, a little girl", "The old man looked at the sea and",
            "It was raining, so they")  # fmt: skip
MOST_DRAWS, MOST_TOKENS = 1_000_000, 64
AT_ONCE = 8  # requests
GREEDY = 32  # tokens of a greedy text
BANDS = (1, 3, 8, 32)  # last ranks of the bands, counted from 1; the tokens below are one more band
# The least variance of a cell's count; rarer cells are merged. A normal distribution is then close.
LEAST = 20.0
LEVEL = 1e-3  # the chance that a server that keeps the law is called unlike it
SOUGHT = 0.1  # the total variation of the wrong rules that the control makes up
CAUGHT = 0.99  # of these, for draws without a finding to mean anything
TEXTS_AT_ONCE = 16  # that are read as branches of one tree

Ids = tuple[int, ...]
Doing = Callable[[str, int, int], None]


def statistic(cells: np.ndarray, chances: np.ndarray) -> tuple[float, int]:
    """The chi-square statistic of some draws, and its degrees of freedom.

    It is Pearson's where all places have the same chances.

    Args:
        cells: those of the drawn tokens, (places,)
        chances: of each cell at each place, (places, cells)
    """
    mean = chances.sum(axis=0)
    every = np.diag(mean) - chances.T @ chances
    merge = merging(every)
    off = merge @ (np.bincount(cells, minlength=len(mean)) - mean)
    covariance = merge @ every @ merge.T
    # The counts sum to a constant, so one direction, or more, has no variance.
    tolerance = 1e-6 * float(np.diag(covariance).max(initial=0.0))
    values, vectors = np.linalg.eigh(covariance)
    varies = values > max(tolerance, 1e-12)
    scaled = (off @ vectors[:, varies]) / np.sqrt(values[varies])
    return float((scaled**2).sum()), int(varies.sum())


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


def p_value(statistic: float, degrees: int) -> float:
    """The chance of a chi-square statistic at least as large; 1 where nothing varies."""
    half = torch.tensor([degrees, statistic], dtype=torch.float64) / 2
    return float(torch.special.gammaincc(*half)) if degrees else 1.0


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


WRONG = ("keeps drafts that it should refuse", "takes the likeliest token too often")


@dataclass(frozen=True, eq=False)
class Draws:
    """Tokens that a server drew.

    Attributes:
        position: the place of each token in its text, from 0, (N,)
        cells: its cell, (N,)
        chances: the chances of all cells there under the law, (N, cells)
        others: the same under the last of the rules WRONG, (N, rules, cells): the first needs a
            draft
        distances: their total variations from the law at each place, (N, rules)
    """

    position: np.ndarray
    cells: np.ndarray
    chances: np.ndarray
    others: np.ndarray
    distances: np.ndarray


@dataclass(frozen=True)
class Check:
    """One chi-square test of some drawn tokens; p is multiplied by the number of tests."""

    name: str
    tokens: int
    statistic: float
    degrees: int
    p: float


def checks(draws: Draws) -> list[Check]:
    """All tests; the draws are unlike the law if any p is below LEVEL (Bonferroni)."""
    last = int(draws.position.max(initial=-1))
    chosen = [(f"token {i + 1}", draws.position == i) for i in range(last + 1)]
    if last > 1:
        chosen.append((f"tokens 2 to {last + 1} together", draws.position > 0))
    tests = []
    for name, at in chosen:
        x, degrees = statistic(draws.cells[at], draws.chances[at])
        p = min(1.0, len(chosen) * p_value(x, degrees))
        tests.append(Check(name, int(at.sum()), x, degrees, p))
    return tests


def unlike(draws: Draws) -> bool:
    return any(check.p < LEVEL for check in checks(draws))


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
    for rule in range(draws.others.shape[1]):
        off = float(draws.distances[later, rule].mean())
        share = min(1.0, SOUGHT / off) if off else 0.0
        mixed = (1 - share) * draws.chances + share * draws.others[:, rule]
        chances = np.where(later[:, None], mixed, draws.chances)
        upper = chances.cumsum(axis=1)
        upper /= upper[:, -1:]
        caught = 0
        for _ in range(times):
            cells = (source.random((len(chances), 1)) >= upper[:, :-1]).sum(axis=1)
            caught += unlike(replace(draws, cells=cells))
        name = WRONG[rule - draws.others.shape[1]]
        rules.append(WrongRule(name, share * off, caught, times))
    return rules


def text_of(client: Client, query: Query, pair: ModelPair) -> Ids:
    """The tokens of an answer, with the one that ended it.

    Raises:
        InputError: if there is none, or its tokens are not told, or are not of this model
    """
    who, record = f"Engine {client.wire.engine.name}", client.ask(query)
    tokens, ends = record.tokens or (), sorted(pair.end_tokens)
    last = max(tokens, default=0)
    ended = record.finished == "stop" and tokens[-1:] not in {(end,) for end in ends}
    refuse(
        (record.note, record.note),
        (
            not tokens,
            f"{who} does not tell token ids, without which its draws cannot be tested; vLLM, "
            "SGLang and llama.cpp tell them.",
        ),
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
    return (*tokens, *(ends if ended else ()))


def read(
    pair: ModelPair,
    draws: Sequence[tuple[Ids, Ids]],
    doing: Callable[[int], None] = lambda texts: None,
) -> Draws:
    """The draws, with the chances that the target gives them at temperature 1.

    If the pair has a draft, this makes the cells finer. `draws` has prefixes and the texts that
    followed them; `doing` hears how many of these have been read.
    """
    pieces, done = list[tuple[np.ndarray, ...]](), 0
    for prefix in dict.fromkeys(prefix for prefix, _ in draws):
        # Those in order share their beginnings, which are read once.
        texts = sorted(text for start, text in draws if start == prefix)
        for begin in range(0, len(texts), TEXTS_AT_ONCE):
            some = texts[begin : begin + TEXTS_AT_ONCE]
            places = decoders.read(pair, list(prefix), [list(text[:-1]) for text in some])
            drafts = [each.q for each in places if each.q is not None]
            p, q = torch.cat([each.p for each in places]), torch.cat(drafts) if drafts else None
            pieces.append(_draws(p, q, some))
            doing(done := done + len(some))
    return Draws(*map(np.concatenate, zip(*pieces, strict=True)))


def _draws(p: torch.Tensor, q: torch.Tensor | None, texts: Sequence[Ids]) -> tuple[np.ndarray, ...]:
    """The fields of `Draws` of texts; p and q: the laws before every token."""
    cell = labels(p, q)
    tokens = torch.tensor([token for text in texts for token in text], device=p.device)
    likeliest = torch.zeros_like(p).scatter_(1, p.argmax(-1, keepdim=True), 1.0)
    wrong = [likeliest] if q is None else [q, likeliest]
    columns = (
        torch.tensor([i for text in texts for i in range(len(text))]),
        cell.gather(1, tokens[:, None])[:, 0],
        shares(p, cell, q is not None),
        torch.stack([shares(law, cell, q is not None) for law in wrong], dim=1),
        torch.stack([(law.double() - p.double()).abs().sum(-1) / 2 for law in wrong], dim=1),
    )
    return tuple(column.cpu().numpy() for column in columns)


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
    dtype: str = "auto"

    def __post_init__(self) -> None:
        whole("draws", self.draws, MOST_DRAWS)
        whole("tokens", self.tokens, MOST_TOKENS)
        allowed("dtype", self.dtype, choices=DTYPES)
        as_seed(self.seed)
        twice = len(set(self.prefixes)) < len(self.prefixes)
        refuse(
            (not self.prefixes, "Give at least one text to continue."),
            (twice, "A text to continue is given twice; give each once."),
        )


@dataclass(frozen=True)
class CanaryReport:
    """What a canary found of an engine, its dialect and the model that it serves.

    `greedy` has, by prefix, where a greedy text of the server and ours part, and why.
    """

    engine: str
    kind: str
    model: str | None
    draws: int
    checks: tuple[Check, ...]
    controls: tuple[WrongRule, ...]
    greedy: Mapping[str, Divergence]
    dtype: str

    @property
    def verdict(self) -> str:
        """ "unlike", "fault", "cannot tell", or "like", which needs a control that was found."""
        if any(check.p < LEVEL for check in self.checks):
            return "unlike"
        if any(parts.verdict == "fault" for parts in self.greedy.values()):
            return "fault"
        strong = all(c.caught >= CAUGHT * c.times for c in self.controls)
        return "like" if strong else "cannot tell"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict, "level": LEVEL}


def watch(
    client: Client,
    pair: ModelPair,
    what: CanaryPlan,
    doing: Doing = lambda words, done, total: None,
    stopped: Callable[[], bool] = lambda: False,
) -> CanaryReport:
    """Test a server that should serve the pair's target.

    `doing` hears what is done, how much of it, and of how much.

    Raises:
        InputError: if the server cannot be tested
        KeyboardInterrupt: if it is `stopped`
    """
    greedy, prompts = dict[str, Divergence](), list[tuple[Ids, Prompt]]()
    for done, words in enumerate(what.prefixes):
        doing("greedy texts", done, len(what.prefixes))
        ids = tuple(encode(words, pair.tokenizer, pair.vocabulary).ids)
        prompts.append((ids, ids if client.dialect.takes_ids else words))
        query = Query(prompts[-1][1], GREEDY, Warping(0.0), what.seed, stream=False)
        theirs = list(text_of(client, query, pair))
        ours = decoders.generate(pair, list(ids), "greedy", max_new_tokens=GREEDY).tokens
        greedy[words] = decoders.compare_greedy(pair, list(ids), ours, theirs, dtype=what.dtype)

    def draw(number: int) -> tuple[Ids, Ids]:
        ids, prompt = prompts[number % len(prompts)]
        query = Query(prompt, what.tokens, seed=what.seed + number, stream=False)
        return ids, text_of(client, query, pair)

    pool, texts = ThreadPoolExecutor(AT_ONCE), list[tuple[Ids, Ids]]()
    try:
        for text in pool.map(draw, range(what.draws)):
            texts.append(text)
            doing("draws", len(texts), what.draws)
            if stopped():
                raise KeyboardInterrupt
    finally:
        pool.shutdown(cancel_futures=True)
    draws = read(pair, texts, lambda n: doing("law of the model", n, len(texts)))
    return CanaryReport(
        client.wire.engine.name, client.dialect.kind, client.shown_model, len(texts),
        tuple(checks(draws)), tuple(controls(draws, what.seed)), greedy, what.dtype,
    )  # fmt: skip
