"""The answer of another engine's server becomes a result: `sample` of each record, and `result`.

Nothing is filled in that the server did not tell: a figure that is not known is None. What the
models here can tell of its text, they do: log-probabilities, and so perplexity, are those of the
target here, which reads the text afterwards.
"""

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch

from decoders import InputError, Metrics, ModelPair, read
from decoders.warp import top
from workbench.engines.record import Record, Speculation
from workbench.measuring.fates import arrived, rebuilt
from workbench.measuring.totals import OF_BATCHES
from workbench.measuring.transcript import Pieces, Place, finite
from workbench.runs.record import Result, Sample
from workbench.runs.trace import UNTOLD, Alternative, Energy, Lap, Server, TokenRecord
from workbench.studies.study import Job

NO_ENERGY = Energy(None, "not measured: an engine is seen from outside")
ENDS = {"length": "budget", "stop": "end of sequence"}
LIKELIEST = 5  # tokens listed at each place, as by decoders

Ids = Sequence[int]


def sample(record: Record, number: int, prompt: Ids, pair: ModelPair, ours: bool = True) -> Sample:
    """The text of an answer with its tokens, their fates and the target's view of each.

    Args:
        record: the answer
        number: index of the prompt
        prompt: its token ids here
        pair: the models here
        ours: whether the server serves the target, so that ids mean the same
    """
    ids = told(record, pair) if ours else None
    steps = record.speculation
    fates = rebuilt(len(ids), steps) if ids else None
    shown = list(ids) if ids is not None else split(record.text, pair)
    per_step = steps.per_step if steps and fates else ()
    return Sample(
        number,
        len(prompt),
        text=record.text,
        tokens=_tokens(shown, fates or [UNTOLD] * len(shown), arrived(record, ids), prompt, pair),
        gained=[1, *(accepted + 1 for _, accepted in per_step)] if per_step else [],
        drafted=[0, *(drafted for drafted, _ in per_step)] if per_step else [],
        ids=shown,
        prompt_ids=list(prompt),
        arrivals=[at for at, _ in record.arrivals],
        finished=ENDS.get(record.finished or "", record.finished or "cut off"),
        error=record.note or None,
    )


def told(record: Record, pair: ModelPair) -> list[int] | None:
    """The ids of an answer, with the token that ended it if there is only one that can.

    Returns:
        None if they are not told, or cannot be the target's
    """
    if record.tokens is None or max(record.tokens, default=0) >= pair.vocabulary:
        return None
    ends = sorted(pair.end_tokens)
    ended = record.finished == "stop" and (not record.tokens or record.tokens[-1] not in ends)
    return [*record.tokens, *(ends if ended and len(ends) == 1 else ())]


def split(text: str, pair: ModelPair) -> list[int]:
    """A text in tokens of the pair here, for an answer without ids of its own."""
    return list(pair.tokenizer(text, add_special_tokens=False).input_ids) if text else []


def result(
    job: Job,
    records: Sequence[Record],
    samples: Sequence[Sample],
    seconds: float,
    server: Server,
    remarks: Sequence[str] = (),
) -> Result:
    """The result of some requests that a server answered.

    Args:
        job: what was asked: the engine as its `method`, repeat, seed and batch size
        records: the answers
        samples: those of the answers
        seconds: from the first request to the end of the last answer
        server: what answered
        remarks: sentences that a reader of the figures must know
    """
    return Result(
        job.method.name, job.repeat, job.seed, metrics(records, samples, seconds), NO_ENERGY,
        list(samples), [lap(records, seconds)], job.batch_size, job.scheme,
        error=samples[0].error if len(samples) == 1 else None, remarks=list(remarks),
        server=server,
    )  # fmt: skip


def lap(records: Sequence[Record], seconds: float) -> Lap:
    """One timing. Pieces that a network delays would come the quicker afterwards, so it is the
    whole that is compared, not its parts."""
    after = seconds - first if (first := _first(records)) is not None else None
    return Lap(seconds, [], NO_ENERGY, after, drawn=False)


def metrics(records: Sequence[Record], samples: Sequence[Sample], seconds: float) -> dict[str, Any]:
    """The figures of some requests by the names of a job's metrics, None for those not told.

    Passes of the target are those over prompts and the verifications, if the latter are counted.
    A chain's rule tests the accepted tokens of a step and the first refused one.
    """
    found = untold()
    counts = [
        len(s.tokens) if r.count is None else r.count for r, s in zip(records, samples, strict=True)
    ]
    log_ps = [t.log_p for s in samples for t in s.tokens]
    scored = [log_p for log_p in log_ps if log_p is not None]
    new, first = sum(counts), _first(records)
    found |= {
        "new_tokens": new,
        "seconds": seconds,
        "tokens_per_second": _ratio(new, seconds),
        "energy_source": NO_ENERGY.source,
    }
    if scored and len(scored) == len(log_ps):
        found["perplexity"] = finite(math.exp(min(700.0, -math.fsum(scored) / len(scored))))
    # A busy machine hears several pieces at once, so the speed after the first is not known.
    if first is not None:
        found["decode_seconds"] = seconds - first
    if spoken := [r.speculation for r in records if r.speculation]:
        found |= _drafts(spoken, new, len(records))
    return found


def untold() -> dict[str, Any]:
    """The figures of a job of which nothing is known."""
    return dict.fromkeys([*(f.name for f in fields(Metrics)), *OF_BATCHES])


def _drafts(spoken: Sequence[Speculation], new: int, requests: int) -> dict[str, Any]:
    if len(spoken) < requests:
        return {}
    drafted, accepted = sum(s.drafted for s in spoken), sum(s.accepted for s in spoken)
    steps = [s.steps for s in spoken if s.steps is not None]
    calls = requests + sum(steps) if len(steps) == requests else None
    each = [step for s in spoken for step in s.per_step]
    tested = sum(a + (a < d) for d, a in each) if all(s.per_step for s in spoken) else None
    return {
        "drafted": drafted,
        "accepted": accepted,
        "acceptance_rate": _ratio(accepted, drafted),
        "tested": tested,
        "alpha": _ratio(accepted, tested),
        "target_calls": calls,
        "block_efficiency": _ratio(new, calls),
    }


def _first(records: Sequence[Record]) -> float | None:
    """Seconds to the first token of a request that was alone."""
    return records[0].first if len(records) == 1 else None


def _tokens(
    ids: Ids, fates: Sequence[str], pieces: Sequence[int], prompt: Ids, pair: ModelPair
) -> list[TokenRecord]:
    write, place, found = Pieces(pair.tokenizer), Place(), []
    chances = _chances(ids, prompt, pair)
    for i, (token, fate) in enumerate(zip(ids, fates, strict=True)):
        likely = (
            [Alternative(other, write.label(place, other), p) for other, p in chances[i][1]]
            if chances
            else []
        )
        text, place = write.extend(place, token)
        found.append(
            TokenRecord(
                token, len(prompt) + i, text, str(fate), pieces[i] if pieces else None,
                None, None, None, None, chances[i][0] if chances else None, likely,
            )
        )  # fmt: skip
    return found


def _chances(
    ids: Ids, prompt: Ids, pair: ModelPair
) -> list[tuple[float | None, list[tuple[int, float]]]]:
    """For each token its log-probability and the likeliest ones there, under the raw target.

    Returns:
        [] if the text is too long for the target here
    """
    if not ids:
        return []
    try:
        places = read(pair, list(prompt), list(ids), draft=False)
    except InputError:
        return []
    log_p = places.log_p[:-1]
    rows = torch.tensor(list(ids), device=log_p.device)[:, None]
    own = log_p.gather(-1, rows)[:, 0].tolist()
    values, tokens = top(log_p, LIKELIEST)
    likely = [
        list(zip(row, chances, strict=True))[:LIKELIEST]
        for row, chances in zip(tokens.tolist(), values.exp().tolist(), strict=True)
    ]
    return [(finite(each), some) for each, some in zip(own, likely, strict=True)]


def _ratio(part: float, whole: float | None) -> float | None:
    return part / whole if whole else None
