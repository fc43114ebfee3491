"""The answer of another engine's server becomes a result, with a verdict on its greedy text.

Nothing is filled in that the server did not tell: a figure that is not known is None. What the
models here can tell of its text, they do: log-probabilities, and so perplexity, are those of the
target here, which reads the text afterwards.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import accumulate
from math import isfinite
from typing import Any

import torch

import decoders
from decoders import Divergence, Fate, InputError, Metrics, ModelPair, read
from decoders.distribution import top
from decoders.inputs import decoded
from workbench.engines.record import Record, Speculation
from workbench.measuring.job import OF_BATCHES
from workbench.measuring.transcript import Pieces, Place, finite
from workbench.measuring.work import Work
from workbench.runs.record import (
    UNTOLD,
    Agreement,
    Alternative,
    Energy,
    Lap,
    Result,
    Sample,
    Server,
    TokenRecord,
)
from workbench.studies.schemes import BASELINE
from workbench.studies.study import Job


def rebuilt(count: int, speculation: Speculation | None) -> list[str] | None:
    """The fate of each token, from the counts of each step.

    The prompt's pass gives one token. Each verification gives the draft tokens that it accepted,
    and one of the target: a correction if a draft token was refused, else a bonus.

    Args:
        count: number of tokens; the text may end within the last step

    Returns:
        None if steps are not told, or do not explain this many tokens
    """
    if speculation is None or not speculation.per_step:
        return None
    fates: list[str] = [Fate.SAMPLED]
    last = 1
    for drafted, accepted in speculation.per_step:
        own = Fate.BONUS if accepted == drafted else Fate.CORRECTED
        fates += [Fate.ACCEPTED] * accepted + [own if drafted else Fate.SAMPLED]
        last = accepted + 1
    return fates[:count] if len(fates) - last < count <= len(fates) else None


def arrived(record: Record, ids: Sequence[int] | None) -> list[int]:
    """For each token the number of the piece that brought it; [] if that is not known."""
    counts = [count for _, count in record.arrivals]
    if ids is None or None in counts:
        return []
    ends = list(accumulate(count or 0 for count in counts))
    pieces = [bisect_right(ends, place) for place in range(len(ids))]
    # The token that ended the text may come without a piece.
    return [min(piece, max(len(ends) - 1, 0)) for piece in pieces]


NO_ENERGY = Energy(None, "not measured: an engine is seen from outside")
ENDS = {"length": "budget", "stop": "end of sequence"}
LIKELIEST = 5  # tokens listed at each place, as by decoders

Ids = Sequence[int]


def sample(record: Record, number: int, prompt: Ids, pair: ModelPair, ours: bool = True) -> Sample:
    """The text of an answer with its tokens, their fates and the target's view of each.

    Args:
        number: index of the prompt
        prompt: its token ids here
        ours: whether the server serves the target, so that ids mean the same
    """
    ids = ids_of(record, pair) if ours else None
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


def ids_of(record: Record, pair: ModelPair) -> list[int] | None:
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
    job: Job, record: Record, sample: Sample, server: Server, remarks: Sequence[str] = ()
) -> Result:
    """The result of a request that a server answered.

    Args:
        job: what was asked: the engine as its `method`, repeat and seed
        remarks: sentences that a reader of the figures must know
    """
    # Pieces that a network delays would come the quicker afterwards, so it is the whole that is
    # compared, not its parts.
    lap = Lap(record.seconds, [], NO_ENERGY, _after(record), drawn=False)
    return Result(
        job.method.name, job.repeat, job.seed, metrics(record, sample), NO_ENERGY, [sample], [lap],
        job.batch_size, job.scheme, error=sample.error, remarks=list(remarks), server=server,
    )  # fmt: skip


def metrics(record: Record, sample: Sample) -> dict[str, Any]:
    """The figures of a request by the names of a job's metrics, None for those not told.

    Passes of the target are that over the prompt and the verifications, if these are counted. A
    chain's rule tests the accepted tokens of a step and the first refused one.
    """
    new = len(sample.tokens) if record.count is None else record.count
    figures = untold() | {
        "new_tokens": new,
        "seconds": record.seconds,
        "tokens_per_second": _ratio(new, record.seconds),
        "energy_source": NO_ENERGY.source,
        "decode_seconds": _after(record),
    }
    scored = [t.log_p for t in sample.tokens if t.log_p is not None]
    if scored and len(scored) == len(sample.tokens):
        figures["perplexity"] = finite(math.exp(min(700.0, -math.fsum(scored) / len(scored))))
    if (spoken := record.speculation) is not None:
        calls = None if spoken.steps is None else 1 + spoken.steps
        tested = sum(a + (a < d) for d, a in spoken.per_step) if spoken.per_step else None
        figures |= {
            "drafted": spoken.drafted,
            "accepted": spoken.accepted,
            "acceptance_rate": _ratio(spoken.accepted, spoken.drafted),
            "tested": tested,
            "alpha": _ratio(spoken.accepted, tested),
            "target_calls": calls,
            "block_efficiency": _ratio(new, calls),
        }
    return figures


def untold() -> dict[str, Any]:
    """The figures of a job of which nothing is known."""
    return dict.fromkeys([*(f.name for f in fields(Metrics)), *OF_BATCHES])


def _after(record: Record) -> float | None:
    """Seconds after the first token.

    A busy machine hears several pieces at once, so the speed after the first is not known.
    """
    return None if record.first is None else record.seconds - record.first


def _tokens(
    ids: Ids, fates: Sequence[str], pieces: Sequence[int], prompt: Ids, pair: ModelPair
) -> list[TokenRecord]:
    write, place, records = Pieces(pair.tokenizer), Place(), []
    chances = _chances(ids, prompt, pair)
    for i, (token, fate) in enumerate(zip(ids, fates, strict=True)):
        likely = (
            [Alternative(other, write.label(place, other), p) for other, p in chances[i][1]]
            if chances
            else []
        )
        text, place = write.extend(place, token)
        records.append(
            TokenRecord(
                token, len(prompt) + i, text, str(fate), pieces[i] if pieces else None,
                None, None, None, None, chances[i][0] if chances else None, likely,
            )
        )  # fmt: skip
    return records


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


# What a name may end in besides the model's: the format of a file, the number type of its weights.
ENDINGS = re.compile(r"(\.gguf|\.safetensors)?$"), re.compile(r"[-_.](f16|fp16|bf16|f32|fp32)$")
# The number type that explains most, and that most servers compute in.
COARSE = "bfloat16"
NO_DTYPE = (
    f" The server does not tell its number type, so {COARSE} is taken; whoever runs the workbench "
    "may name it as `dtype`."
)


def same_model(name: str, pair: ModelPair) -> bool:
    """Whether a model's name in a server's words is the target's: "Qwen3-8B" is Qwen/Qwen3-8B.

    The folders of a pair are called target and draft, so the folder around them names the target.
    """
    theirs, ours = map(_parts, (name, str(pair.target.config.name_or_path)))
    shared = min(len(theirs), len(ours))
    return shared > 0 and theirs[-shared:] == ours[-shared:]


def _parts(name: str) -> list[str]:
    for ending in ENDINGS:
        name = ending.sub("", name.casefold())
    parts = [part for part in re.split(r"[/\\]", name) if part not in ("", ".")]
    return parts[:-1] if len(parts) > 1 and parts[-1] == "target" else parts


def given(
    work: Work,
    result: Result,
    record: Record,
    greedy: Sequence[int] | None,
    dtype: str | None,
) -> Result:
    """The result with the judge's verdict on its greedy text, beside greedy decoding here.

    Args:
        work: the pair, the prompts and the settings
        greedy: the tokens of greedy decoding here; None decodes them now
        dtype: the number type that the server computes in; None if that is not known
    """
    sample = result.alone
    prompt = work.ids[sample.prompt]
    try:
        if greedy is None:
            most = work.settings.max_new_tokens
            alone = decoders.generate(work.pair, prompt, BASELINE, max_new_tokens=most)
            greedy = alone.tokens
        text, used = work.texts[sample.prompt], dtype or COARSE
        divergence = _judged(work, prompt, text, greedy, record, used)
    except InputError as error:
        return replace(result, remarks=[*result.remarks, f"Its text gets no verdict: {error}"])
    differs = divergence.verdict != "same"
    gap, unsaid = abs(divergence.gap_float64), NO_DTYPE if differs and dtype is None else ""
    return replace(
        result,
        agreement=Agreement(
            BASELINE, 1, int(differs), divergence.place if differs else None,
            gap if differs and isfinite(gap) else None, divergence.bound / 2 if differs else None,
            divergence.verdict == "near-tie", used, divergence.verdict, divergence.says + unsaid,
        ),
    )  # fmt: skip


def _judged(
    work: Work, prompt: list[int], text: str | None, greedy: Sequence[int], record: Record,
    dtype: str,
) -> Divergence:  # fmt: skip
    pair, theirs = work.pair, ids_of(record, work.pair)
    if theirs is not None:
        return decoders.compare_greedy(pair, prompt, list(greedy), theirs, dtype=dtype)
    ours = decoded(pair.tokenizer, list(greedy))
    return decoders.compare_greedy(pair, text or prompt, ours, record.text, dtype=dtype)
