"""The loop: drives any number of requests at once, and packs all that wait for the same model into one forward pass."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from decoders.engine.model import Engine
from decoders.errors import ModelError
from decoders.request import Ask, Request
from decoders.settings import Decoding
from decoders.shapes import Logits
from decoders.trace import Round


@dataclass(eq=False)
class Job:
    """A request on its way: its generator, the cache rows to reserve for it and the ask it waits for; `error` is set where it
    failed and the others went on."""

    index: int
    request: Request
    decoding: Decoding
    rows: int
    waiting: Ask | None = None
    error: ModelError | None = None
    rounds: deque[Round] = field(default_factory=deque)

    @property
    def over(self) -> bool:
        return self.request.finished is not None or self.error is not None

    def resume(self, answer: Logits | None) -> None:
        """Let the decoder go on until it needs a forward pass or has finished; rounds it commits on the way are queued."""
        with torch.inference_mode():
            while not self.over:
                item = self.decoding.send(answer)
                answer = None
                if isinstance(item, Round):
                    self.rounds.append(item)
                elif self.request.missing(item):
                    self.waiting = item
                    return
                else:
                    answer = self.request.answer_to(item)
        self.waiting = None
        self.decoding.close()


def drive(
    jobs: Sequence[Job],
    engines: Mapping[str, Engine],
    *,
    max_batch: int | None = None,
    prefill_chunk: int | None = None,
    static: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Job, Round | None]]:
    """Decode all jobs; yields each round as it is committed, and (job, None) once when a job is over.

    At most `max_batch` requests are in flight, and as many as the engines have room for; the place of one that ends goes to the next
    at once, in `static` batches when all have ended. `cancelled` is looked at before every pass. However it ends, also by closing
    this generator, all cache rows are given back.
    """
    queue, active = deque(jobs), list[Job]()
    try:
        while queue or active:
            if cancelled():
                for job in (*active, *queue):
                    job.request.finished = "cancelled"
                    job.decoding.close()
                    yield job, None
                return
            places = 0 if static and active else (max_batch or len(jobs)) - len(active)
            while queue and places > 0 and _admit(queue[0], engines):
                job = queue.popleft()
                active.append(job)
                places -= 1
                job.request.note_time(None)
                job.resume(None)
            # Drafts first: then everything that is alive shares the target's pass.
            model = "draft" if any(j.waiting.model == "draft" for j in active) else "target"
            turn = [j for j in active if j.waiting.model == model]
            _forward(turn, engines[model], model, prefill_chunk)
            for job in turn:
                while job.rounds:
                    yield job, job.rounds.popleft()
                if job.over:
                    active.remove(job)
                    _release(job.request, engines)
                    yield job, None
    finally:
        for job in active:
            job.decoding.close()
            _release(job.request, engines)


def _admit(job: Job, engines: Mapping[str, Engine]) -> bool:
    if all(engine.admit(job.request.tree, job.rows) for engine in engines.values()):
        return True
    _release(job.request, engines)
    return False


def _release(request: Request, engines: Mapping[str, Engine]) -> None:
    for engine in engines.values():
        engine.release(request.tree)


def _forward(turn: Sequence[Job], engine: Engine, model: str, chunk: int | None) -> None:
    """One pass for the jobs of this turn; each that got its logits goes on to its next ask."""
    wants = [(j.request.tree, j.request.missing(j.waiting)) for j in turn]
    answers = engine.run(wants, chunk)
    for job, (_, nodes), answer in zip(turn, wants, answers, strict=True):
        request, counts = job.request, job.request.counts
        counts.bytes_read += answer.cache_bytes + answer.weight_bytes / len(turn)
        if waste := answer.waste:
            counts.padded_tokens += waste.tokens
            counts.padded_rows += waste.rows
            if model == "target" and waste.longest_growth > 0:
                counts.padding_ratios.append(waste.rows / waste.longest_growth)
        counts.peak_rows = max(counts.peak_rows, engine.rows_of(request.tree))
        counts.peak_cache_bytes = max(counts.peak_cache_bytes, answer.cache_bytes)
        if answer.logits is None:
            counts.prefill_calls += 1
            request.note_time(model)
            continue
        if model == "target":
            counts.target_calls += 1
        else:
            counts.draft_calls += 1
        try:
            if not answer.sound:
                step = request.tree.new_length(request.answer) + 1
                raise ModelError(
                    f"The {engine.model.name} gave logits that are not numbers at token {step}; check its weights and its dtype."
                )
            request.known[model].update(zip(nodes, answer.logits, strict=True))
            request.note_time(model)
            job.resume(request.answer_to(job.waiting))
        except ModelError as error:
            job.error = error.with_traceback(None)  # a traceback would keep the cache alive with the result
            job.decoding.close()
