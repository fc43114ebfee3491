"""The law of the model at the places that a server's draws visited."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch

import decoders
from decoders import ModelPair, Places
from workbench.engines.canary.cells import Tally, labels, shares, whole
from workbench.engines.canary.draws import Draws, Other, joined
from workbench.engines.canary.spelling import Ids, Spelling

AT_ONCE = 16  # texts that are read as branches of one tree


def read(
    pair: ModelPair,
    drawn: Sequence[tuple[Ids, Ids]],
    spelling: Spelling | None = None,
    told: Callable[[int], None] = lambda texts: None,
) -> Draws:
    """The draws with the chances that the target gives them at temperature 1.

    Args:
        pair: the model that the server should serve; if it has a draft, this makes the cells finer
        drawn: prefixes and the texts that followed them, at least one
        spelling: merges tokens with the same text, if tokens are known by it alone
        told: called with the number of texts that have been read, each time that it has grown
    """
    found: list[Draws] = []
    done = 0
    for prefix in dict.fromkeys(prefix for prefix, _ in drawn):
        times = Counter(text for start, text in drawn if start == prefix)
        texts = sorted(times)  # those in order share their beginnings, which are read once
        for begin in range(0, len(texts), AT_ONCE):
            some = texts[begin : begin + AT_ONCE]
            every = decoders.read(pair, list(prefix), [list(text[:-1]) for text in some])
            p, q = _laws(every, spelling)
            starts = () if begin else (_start(p[0], times),)
            found.append(_draws(p, q, some, [times[text] for text in some], starts))
            done += sum(times[text] for text in some)
            told(done)
    return joined(found)


def _start(law: torch.Tensor, times: Counter[Ids]) -> Tally:
    """The first tokens after one prefix."""
    first, counts = [text[0] for text in times], list(times.values())
    return whole(law.double().cpu().numpy(), np.bincount(first, counts, minlength=len(law)))


def _laws(
    places: Sequence[Places], spelling: Spelling | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The laws of target and draft at all places of some texts, (places, V)."""
    drafts = [each.q for each in places if each.q is not None]
    p, q = torch.cat([each.p for each in places]), torch.cat(drafts) if drafts else None
    if spelling is not None:
        p, q = spelling.merged(p), None if q is None else spelling.merged(q)
    return p, q


def _draws(
    p: torch.Tensor,
    q: torch.Tensor | None,
    texts: Sequence[Ids],
    times: Sequence[int],
    starts: tuple[Tally, ...],
) -> Draws:
    """The draws of some texts.

    Args:
        p: the law before their every token, (places, V)
        q: that of the draft
        texts: their tokens
        times: how often each was drawn
        starts: see `Draws`
    """
    cell = labels(p, q)
    tokens = torch.tensor([token for text in texts for token in text], device=p.device)
    again = np.repeat(times, [len(text) for text in texts])

    def repeated(values: torch.Tensor) -> np.ndarray:
        return np.repeat(values.cpu().numpy(), again, axis=0)

    def other(law: torch.Tensor) -> Other:
        distance = (law.double() - p.double()).abs().sum(-1) / 2
        return repeated(shares(law, cell, q is not None)), repeated(distance)

    likeliest = torch.zeros_like(p).scatter_(1, p.argmax(-1, keepdim=True), 1.0)
    drafted = {} if q is None else {"keeps drafts that it should refuse": other(q)}
    return Draws(
        np.repeat([i for text in texts for i in range(len(text))], again),
        repeated(cell.gather(1, tokens[:, None])[:, 0]),
        repeated(shares(p, cell, q is not None)),
        starts,
        {**drafted, "takes the likeliest token too often": other(likeliest)},
    )
