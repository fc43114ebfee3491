"""Workers as actors of Ray, one for each GPU or core. Ray is an extra.

The cluster runs already or is started here.
"""

import logging
import os
import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from decoders import InputError
from decoders.errors import quoted
from workbench.experiments.bench import Bench

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
PATIENCE = 5.0  # seconds to wait for a cluster to answer
THREADS = {"WORKBENCH_THREADS": "1", "OMP_NUM_THREADS": "1"}  # of an actor that has one core


class Cluster:
    """A pool of actors.

    If an actor dies or its node leaves, it is started again where there is room.

    Args:
        address: of the cluster; "auto" for this machine's, "local" to start one here
        make: makes an actor's bench
        most: the most actors, None for as many as there is room for

    Raises:
        InputError: if Ray is not installed or the cluster cannot be reached
    """

    def __init__(
        self,
        address: str = "local",
        make: Callable[[], Any] = Bench,
        most: int | None = None,
    ):
        try:
            import ray
        except ImportError:
            raise InputError("Ray is not installed; `pip install ray`, or omit --ray.") from None
        self._ray, self._make, self._most = ray, make, most
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
            raise InputError(
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
        room = max(1, int(self._ray.cluster_resources().get(self._kind, 1)))
        return min(room, self._most or room)

    def start(self, number: int) -> "Remote":
        gpu = self._kind == "GPU"
        needs = {"num_gpus": 1, "num_cpus": 0} if gpu else {"num_cpus": 1}
        make = self._ray.remote(Actor).options(**needs).remote
        return Remote(self._ray, make(self._make, {} if gpu else THREADS))

    def close(self) -> None:
        self._ray.shutdown()


class Actor:
    """A process that holds a bench."""

    def __init__(self, make: Callable[[], Any], environ: dict[str, str]):
        os.environ.update(environ)
        self._bench = make()

    def call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._bench, name)(*arguments)


class Remote:
    """A worker that is an actor."""

    def __init__(self, ray: Any, actor: Any):
        self._ray, self._actor = ray, actor

    def submit(self, name: str, *arguments: Any) -> Future:
        found: Future = Future()
        mine = self._actor.call.remote(name, *arguments).future()

        def done(of: Future) -> None:
            error = of.exception()
            if error is None:
                found.set_result(of.result())
            else:  # the error that was raised there, without Ray's wrapper
                found.set_exception(getattr(error, "cause", None) or error)

        mine.add_done_callback(done)
        return found

    def close(self) -> None:
        self._ray.kill(self._actor)
