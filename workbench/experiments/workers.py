"""Workers: this process, or actors of Ray for each GPU or core.

Each has a bench, which keeps a pair loaded and decodes units of work with `measure`. It also tells
all that can change an answer besides the plan: the code and the models.
"""

import contextlib
import hashlib
import logging
import os
import platform
import socket
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

import decoders
from decoders.errors import quoted
from decoders.inputs import decoded
from decoders.process import light_heap
from workbench.experiments.cells import Cell, CellBlock, digest
from workbench.experiments.journal import NEXT_TIMING, failed
from workbench.measuring.device import Device, chosen
from workbench.measuring.job import measure
from workbench.measuring.meter import Meter, Watch, open_meter, watch
from workbench.measuring.work import Measured, Work, encode_prompt
from workbench.models.keeper import PairKeeper, environment
from workbench.models.presets import PairChoice
from workbench.runs.record import Result, Sample
from workbench.studies.prompts import Words
from workbench.studies.study import in_turn


@cache
def code() -> str:
    root = Path(decoders.__file__).parent
    files = [file for file in sorted(root.rglob("*.py")) if "integrations" not in file.parts]
    return digest([(file.relative_to(root).as_posix(), file.read_text("utf-8")) for file in files])


def identity(pair: decoders.ModelPair, quantization: str | None = None) -> dict[str, Any]:
    """Models, dtype and kind of device, which a cell's id contains.

    Args:
        quantization: the form in which its weights were loaded, which no revision tells
    """
    where = environment(pair)
    facts = {"dtype": where["dtype"], "device": pair.target.device.type}
    if quantization is not None:  # left out of others, so that their cells keep their ids
        facts["quantization"] = quantization
    for role in ("target", "draft", "head"):
        if known := where.get(role):  # the hub's revision; of other models a hash of their weights
            facts[role] = (
                f"{known['name']}@{known['revision']}"
                if known["revision"]
                else f"{known['type']} {weights(getattr(pair, role))}"
            )
    return facts


def weights(model: torch.nn.Module | decoders.Head) -> str:
    hashed, left = hashlib.sha256(), [*model.state_dict().items()]
    while left:
        name, weight = left.pop(0)
        if hasattr(weight, "__tensor_flatten__"):  # quantised: its bytes are those of its parts
            parts, _ = weight.__tensor_flatten__()
            left += [(f"{name}.{part}", getattr(weight, part)) for part in parts]
            continue
        hashed.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        hashed.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return hashed.hexdigest()[:16]


class Bench:
    """Runs units in the thread that calls it.

    Args:
        ready: returns the loaded pair, with its threads chosen; by default the bench has a process,
            and maybe a GPU, to itself, and loads it
    """

    _tools: tuple[Meter, Watch]

    def __init__(self, ready: Callable[[PairChoice], decoders.ModelPair] | None = None):
        self._ready, self._own = ready or PairKeeper().get, ready is None
        self._pair: decoders.ModelPair | None = None
        self._warm: set[tuple[Any, ...]] = set()

    def _at(self, choice: PairChoice) -> decoders.ModelPair:
        pair = self._ready(choice)
        if pair is not self._pair:
            if self._own:
                torch.set_num_threads(chosen(pair, os.environ).count)
            device = pair.target.device
            self._pair, self._tools, self._warm = pair, (open_meter(device), watch(device)), set()
        return pair

    def facts(self, choice: PairChoice) -> dict[str, Any]:
        """The pair's "identity", which cells' ids contain, and its "environment", for reports."""
        pair = self._at(choice)
        where = environment(pair) | {"host": platform.node()}
        return {"identity": identity(pair, choice.quantization), "environment": where}

    def run(self, block: CellBlock, texts: Sequence[Words]) -> list[Result]:
        """Let the cells of a block with one item take turns on it; a failure becomes a result.

        Args:
            texts: of the item's prompts; the last batch of a set is filled up with earlier prompts

        Returns:
            a result of each cell
        """
        pair = self._at(block.cells[0].choice)
        turn, cells = sum(divmod(min(block.items), NEXT_TIMING)), block.cells
        with light_heap():
            results = [self._result(pair, block, cell, texts) for cell in in_turn(cells, turn)]
        return list(in_turn(results, turn))

    def _result(
        self, pair: decoders.ModelPair, block: CellBlock, cell: Cell, texts: Sequence[Words]
    ) -> Result:
        ((item, prompts),) = block.items.items()
        try:
            chat = cell.settings.chat_template, cell.settings.system
            encoded = [encode_prompt(pair, text, *chat) for text in texts]
            ids = [each.ids for each in encoded]
            job = cell.job(prompts[0])
            decoders.check(
                pair,
                ids,
                job.method,
                **{**cell.settings.decoding, "seed": job.seed},
                **job.batching,
            )
        except decoders.InputError as error:
            return failed(cell, item, dict(_first(prompts)).values(), str(error))
        work = Work(
            pair, ids, cell.settings, *self._tools, lambda: False,
            parts=[each.parts for each in encoded],
        )  # fmt: skip
        key = (cell.choice, cell.method, cell.batch_size, cell.scheme)
        measured = whole(measure(work, job, cold=cell.timed and key not in self._warm, shows=False))
        self._warm.add(key)
        samples = [_sample(pair, measured, ids, *each) for each in _first(prompts)]
        return replace(measured.result, samples=samples)


def _first(prompts: tuple[int, ...]) -> list[tuple[int, int]]:
    """(place, prompt) of the item's own prompts, without those that fill up the last batch."""
    return [(i, p) for i, p in enumerate(prompts) if prompts.index(p) == i and p >= prompts[0]]


def _sample(
    pair: decoders.ModelPair, measured: Measured, ids: list[list[int]], place: int, prompt: int
) -> Sample:
    """The sample at a place of the batch, with its text, under the prompt's own number."""
    sample = next(
        (s for s in measured.result.samples if s.prompt == place), Sample(place, len(ids[place]))
    )
    tokens = list(measured.outputs.get(place, []))
    shown = tokens[:-1] if tokens and tokens[-1] in pair.end_tokens else tokens
    text = decoded(pair.tokenizer, shown) if pair.tokenizer and shown else ""
    return replace(sample, prompt=prompt, text=text, ids=tokens)


def whole(measuring: Generator[Any, None, Measured]) -> Measured:
    while True:
        try:
            next(measuring)
        except StopIteration as done:
            return done.value


def answer(future: Future) -> Any:
    """The result of a future of a worker; an error is the one that was raised there.

    Ray wraps it.
    """
    try:
        return future.result()
    except Exception as error:
        raise getattr(error, "cause", None) or error from None


class Crew(contextlib.AbstractContextManager["Crew"]):
    """The running workers of a pool, each started when it is first needed.

    A worker does one thing at a time. If a future fails with one of the pool's `deaths`, the worker
    is gone.

    Use it as a context, which closes them.
    """

    def __init__(self, pool: "Pool"):
        self.pool = pool
        self.up: list[Worker] = []

    def idle(self, busy: Collection["Worker"]) -> Iterator["Worker"]:
        """Workers with nothing to do: first those that run, then new ones while there is room."""
        yield from [worker for worker in self.up if worker not in busy]
        while len(self.up) < self.pool.count:
            self.up.append(self.pool.start())
            yield self.up[-1]

    def lose(self, worker: "Worker") -> None:
        """Forget a dead worker; another takes its place."""
        self.up.remove(worker)
        with contextlib.suppress(Exception):
            worker.close()

    def __exit__(self, *_: object) -> None:
        for worker in list(self.up):
            self.lose(worker)
        self.pool.close()


class InProcess:
    """One worker: the thread of a `Device`, shared with everything else that runs there."""

    count, says = 1, "in this process"
    deaths: tuple[type[BaseException], ...] = ()

    def __init__(self, device: Device):
        self._device, self._bench = device, Bench(lambda choice: device.ready(choice)[0])
        self._thread = ThreadPoolExecutor(1, "experiment")

    def start(self) -> "InProcess":
        return self

    def submit(self, name: str, *arguments: Any) -> Future:
        return self._thread.submit(self._turn, name, arguments)

    def _turn(self, name: str, arguments: Sequence[Any]) -> Any:
        with self._device.turn:
            return self._device.call(getattr(self._bench, name), *arguments)

    def close(self) -> None:
        self._thread.shutdown(wait=True)


os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
PATIENCE = 5.0  # seconds to wait for a cluster to answer
THREADS = {"WORKBENCH_THREADS": "1", "OMP_NUM_THREADS": "1"}  # of an actor that has one core


class Cluster:
    """A pool of actors.

    If an actor dies or its node leaves, it is started again where there is room.

    Args:
        address: of the cluster; "auto" for this machine's, "local" to start one here
        make: the class of its actors

    Raises:
        decoders.InputError: if Ray is not installed or the cluster cannot be reached
    """

    def __init__(self, address: str = "local", make: type = Bench):
        try:
            import ray
        except ImportError:
            raise decoders.InputError(
                "Ray is not installed; `pip install ray`, or omit --ray."
            ) from None
        self._ray, self._make = ray, make
        self.deaths = (
            ray.exceptions.RayActorError,
            ray.exceptions.WorkerCrashedError,
            ray.exceptions.NodeDiedError,
        )
        started: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
        try:
            # If nothing listens at HOST:PORT, Ray itself would try for minutes.
            host, colon, port = address.rpartition(":")
            if colon and port.isdecimal():
                socket.create_connection((host, int(port)), PATIENCE).close()
            ray.init(
                address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                ignore_reinit_error=True,
                **started,
            )
        except (OSError, ValueError, RuntimeError) as error:
            why = str(error).strip().partition("\n")[0]
            raise decoders.InputError(
                f"The Ray cluster at {quoted(address)} cannot be reached ({why}); start it with "
                "`ray start --head`."
            ) from None
        self._kind = "GPU" if ray.cluster_resources().get("GPU", 0) >= 1 else "CPU"
        nodes = sum(node["Alive"] for node in ray.nodes())
        self.says = (
            f"{self.count} Ray actors on {nodes} nodes, one for each "
            f"{'GPU' if self._kind == 'GPU' else 'core'}"
        )

    @property
    def count(self) -> int:
        """The number of actors for which the nodes now have room."""
        return max(1, int(self._ray.cluster_resources().get(self._kind, 1)))

    def start(self) -> "Remote":
        gpu = self._kind == "GPU"
        core = {"num_cpus": 1, "runtime_env": {"env_vars": THREADS}}
        needs: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0} if gpu else core
        return Remote(self._ray, self._ray.remote(self._make).options(**needs).remote())

    def close(self) -> None:
        self._ray.shutdown()


class Remote:
    def __init__(self, ray: Any, actor: Any):
        self._ray, self._actor = ray, actor

    def submit(self, name: str, *arguments: Any) -> Future:
        return getattr(self._actor, name).remote(*arguments).future()

    def close(self) -> None:
        self._ray.kill(self._actor)


# They start workers: `count` at most at once, `says` in words.
Pool = InProcess | Cluster
# They call a bench: `submit("run", unit)`, say.
Worker = InProcess | Remote
