"""Will speculative decoding pay? The advisor measures acceptance and costs on a few prompts.

From these it predicts the speed-up of each draft length. Acceptance is teacher-forced: the target
writes texts, and at each place of a text the draft model's token is accepted with the chance
beta = 1 - TV(p, q) of the warped distributions (Leviathan et al. 2023, arXiv 2211.17192, theorem
3.5). Their theorem 3.8 assumes one alpha for all places; here each place has its own chance, and
the rounds are summed over them. A round's seconds are measured at a few draft lengths. Decoders
that this theory does not cover are measured on the same prompts.
"""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import decoders
from decoders import InputError, Method, ModelPair, catalog
from decoders.distribution import Whole
from decoders.theory import acceptance
from workbench.experiments.bench import whole
from workbench.experiments.speedups import LENGTHS, TIMED_LENGTHS, Advice, Timed, ranked
from workbench.kinds.advice.words import named
from workbench.measuring.admit import encode_prompt
from workbench.measuring.disturbance import watch
from workbench.measuring.job import measure
from workbench.measuring.meter import open_meter
from workbench.measuring.work import Measured, Work
from workbench.runs.doubts import disturbances
from workbench.studies.schemes import BASELINE
from workbench.studies.settings import Settings
from workbench.studies.study import Job

MOST_PROMPTS = 20
OTHERS = ("lookup", "ngram", "spectr", "specinfer", "mcss", "typical", "bild", "mtad", "dsbd")


@dataclass(frozen=True, slots=True)
class Step:
    """The progress of the advisor.

    Attributes:
        says: the present step in words
        done: texts and timings that are done
        total: all texts and timings
        left: seconds left, None at first
    """

    says: str
    done: int
    total: int
    left: float | None


def advise(
    pair: ModelPair,
    prompts: Sequence[str],
    settings: Settings,
    others: Sequence[str] = OTHERS,
    measure_all: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
) -> Generator[Step | Advice, None, None]:
    """Predict and measure the speed-ups of the decoders.

    Args:
        pair: the pair
        prompts: the prompts; at most MOST_PROMPTS of them are used
        settings: sampling and the length of texts; its decoders are not read
        others: names of decoders to measure besides speculative decoding
        measure_all: also measure every draft length
        cancelled: returns True to end it within a forward pass

    Yields:
        a step before each text and each timing, and at the end the advice unless cancelled

    Raises:
        InputError: if the pair has no draft model
    """
    if pair.draft is None:
        raise InputError("Advice is not possible without a draft model; load a pair of two models.")
    ids = [encode_prompt(pair, text, settings.chat_template) for text in prompts[:MOST_PROMPTS]]
    device = pair.target.device
    work = Work(pair, ids, settings, open_meter(device), watch(device), cancelled)
    speculative = {n: catalog["speculative"](draft_length=n) for n in LENGTHS}
    lengths = LENGTHS if measure_all else TIMED_LENGTHS
    methods = [catalog[BASELINE](), *(speculative[n] for n in lengths)]
    methods += [catalog[name]() for name in others]
    timed: dict[Method, list[Timed]] = {method: [] for method in methods}
    steps = _Steps(len(ids) * (1 + len(timed)))
    texts = []
    for i in range(len(ids)):
        yield steps.next(f"The target writes text {i + 1} of {len(ids)}")
        texts.append(_written(work, i))
    if cancelled():
        return
    betas = [accepted(pair, *both, settings) for both in zip(ids, texts, strict=True)]
    for i in range(len(ids)):
        for method in reversed(timed) if i % 2 else timed:
            yield steps.next(f"{named(method)} on prompt {i + 1} of {len(ids)}")
            done = _measured(work, method, i)
            if cancelled():
                return
            timed[method].append(_timed(done))
    yield ranked(betas, timed, settings.temperature)


class _Steps:
    def __init__(self, total: int):
        self.done, self.total, self.began = 0, total, time.monotonic()

    def next(self, says: str) -> Step:
        elapsed = time.monotonic() - self.began
        left = elapsed / self.done * (self.total - self.done) if self.done else None
        self.done += 1
        return Step(says, self.done - 1, self.total, left)


def _written(work: Work, prompt: int) -> list[int]:
    """The target's own text, sampled with the settings."""
    options = {**work.settings.decoding, "seed": work.settings.seed + prompt}
    method, prompt_ids = catalog["multinomial"](), work.ids[prompt]
    result = decoders.generate(work.pair, prompt_ids, method, **options, cancel=work.cancelled)
    return result.tokens


def accepted(
    pair: ModelPair, prompt: Sequence[int], text: Sequence[int], settings: Settings
) -> list[float]:
    """For each token of a text the chance that a draft there is accepted: 1 - TV(p, q), (tokens,).

    Args:
        pair: the pair
        prompt: token ids of the prompt
        text: token ids of the text
        settings: the sampling
    """
    places = decoders.read(pair, prompt, text, **settings.sampling)
    assert places.q is not None  # else there is no advice
    both = zip(places.p[:-1], places.q[:-1], strict=True)
    return [acceptance(Whole(p), Whole(q)) for p, q in both]


def _measured(work: Work, method: Method, prompt: int) -> Measured:
    one = Work(work.pair, [work.ids[prompt]], work.settings, work.meter, work.watch, work.cancelled)
    job = Job(method, 0, work.settings.seed + prompt, keep="lengths")
    done = whole(measure(one, job, cold=prompt == 0, drawn=False))
    if done.result.errors:
        raise InputError(f"{method.name} failed on prompt {prompt + 1}: {done.result.errors[0]}")
    return done


def _timed(done: Measured) -> Timed:
    metrics: dict[str, Any] = done.result.metrics
    # All but the first round, which also reads the prompt, and the last, which drafts less.
    return Timed(
        metrics["new_tokens"], metrics["seconds"], done.lap.rounds[1:-1], done.lap.drafting[1:-1],
        len(done.rounds[0][0]), disturbances(done.result),
    )  # fmt: skip
