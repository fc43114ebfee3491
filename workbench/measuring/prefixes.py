"""The exact probabilities of a text's first tokens: a tree of those likely enough to be counted in draws, a pass for each of its layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import decoders
from decoders import Fate, Method, ModelPair, Trial
from decoders.settings import Decoding, setting
from workbench.measuring.detokenise import Pieces, Place
from workbench.runs.cells import DEPTH, LEAST
from workbench.runs.trace import Prefix
from workbench.studies.draw import Draw


@dataclass(frozen=True)
class Likely(Method):
    """Not a decoder that writes: it asks the target for every prefix that so many draws are expected to begin with LEAST times, layer by
    layer, and commits one round, whose trials carry the probability of each token after its parent."""

    name = "likely"
    title = "Likely prefixes"
    law = None
    paper, section = "Cochran 1954", "expected counts"
    summary = "Reads what the large model says of the likeliest first tokens."

    draws: int = setting(100, "draws that will be counted", low=1, high=1_000_000)

    @property
    def branches(self) -> tuple[int, int]:
        return 1, DEPTH * int(self.draws / LEAST)

    def decode(self, request: Any) -> Decoding:
        expected, trials = {request.tip: float(self.draws)}, []
        for _ in range(request.budget):
            readings = yield request.ask("target", list(expected), int(max(expected.values()) / LEAST))
            found = [
                each
                for at, reading in zip(expected.items(), readings, strict=True)
                for each in _likely(request, *at, reading)
            ]
            trials += found
            expected = {t.node: expected[t.parent] * chance(t) for t in found if t.token not in request.end_tokens}
            if not expected:
                break
        yield request.commit(trials, [request.answer], request.answer, "budget")


def _likely(request: Any, node: int, count: float, reading: Any) -> list[Trial]:
    """The tokens after a node that are expected LEAST times in `count` draws: no more than count / LEAST can be."""
    p = request.warp(reading)
    tokens = [token for token in reading.likeliest(int(count / LEAST))[0] if count * p[token] >= LEAST]
    return [Trial(request.tree.add(node, token), token, node, Fate.DISCARDED, p=p[token]) for token in tokens]


def exact(pair: ModelPair, study: Draw, ids: Sequence[int]) -> list[Prefix]:
    """The prefixes of up to DEPTH tokens that all draws together are expected to begin with LEAST times, parents first; [] at
    temperature 0, where nothing is drawn. Raises ModelError if the model fails."""
    settings = study.settings
    if settings.temperature == 0:
        return []
    options = {**settings.decoding, "max_new_tokens": min(DEPTH, settings.max_new_tokens)}
    (round_,) = decoders.generate(pair, list(ids), Likely(study.draws), **options).rounds
    pieces, root = Pieces(pair.tokenizer), len(ids) - 1
    found: dict[int, tuple[tuple[int, ...], Place, float]] = {root: ((), Place(), 1.0)}
    prefixes = []
    for trial in round_.trials:
        tokens, place, p = found[trial.parent]
        likely = p * chance(trial)
        found[trial.node] = (*tokens, trial.token), pieces.extend(place, trial.token)[1], likely
        prefixes.append(Prefix([*tokens, trial.token], pieces.label(place, trial.token), min(1.0, likely)))
    return prefixes


def chance(trial: Trial) -> float:
    """p of a trial whose decoder gives it."""
    return cast(float, trial.p)
