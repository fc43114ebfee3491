"""Ray: two nodes with two workers each give the rows of one process, and lose nothing. Skipped
where Ray is not installed."""

import os

import pytest

from decoders import InputError
from tests.models import build, build_tokenizer
from tests.workbench.experiments import benches, killed
from tests.workbench.experiments.conftest import answers
from workbench.experiments import driver
from workbench.experiments.journal import Journal
from workbench.experiments.plan import ExperimentRequest
from workbench.experiments.workers import Crew, InProcess
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.models.presets import EMBEDDED

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster as LocalCluster  # noqa: E402

from workbench.experiments.workers import Cluster  # noqa: E402

NODE = {"num_cpus": 2, "num_gpus": 0, "object_store_memory": 80 * 2**20}
REAL = """
[[part]]
pairs = [["{folder}/target", "{folder}/draft"]]
limit = 4
max_new_tokens = 8
decoders = ["speculative", "mtad"]
"""


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes, and the second one, which the last test removes."""
    cluster = LocalCluster(
        initialize_head=True, head_node_args={**NODE, "include_dashboard": False}
    )
    second = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    yield cluster, second
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def four(nodes):
    """Four actors that are up: starting one takes seconds, and a process has one connection."""
    with Crew(Cluster(nodes[0].address, benches.Either)) as crew:
        up(crew)
        yield crew


def up(crew: Crew) -> None:
    """All workers at once, and none left to start."""
    waiting = [worker.submit("facts", EMBEDDED.choice()) for worker in crew.idle(())]
    assert len([w.result() for w in waiting]) == 4


def ran(crew: Crew, journal: Journal, plan: str = killed.PLAN, between=lambda now: None) -> str:
    experiment = driver.prepare(ExperimentRequest(plan, "cluster.toml"), crew)
    for now in driver.run(experiment, journal, crew):
        between(now)
    assert now.done == now.total
    return experiment.id


@pytest.mark.slow
def test_the_same_plan_gives_the_same_outputs_as_in_process(four, tmp_path):
    for role, seed in (("target", 0), ("draft", 1)):
        build(seed=seed).float().save_pretrained(tmp_path / role)
        build_tokenizer().save_pretrained(tmp_path / role)
    plan = REAL.format(folder=tmp_path)
    one, two = (Journal(tmp_path / f"{name}.sqlite") for name in ("1", "2"))
    with Crew(InProcess(Device(PairKeeper()))) as crew:
        here = ran(crew, one, plan)
    assert four.pool.count == 4
    assert four.pool.says == "4 Ray actors on 2 nodes, one for each core"
    there = ran(four, two, plan)
    assert here == there
    assert answers(one, here) == answers(two, there)
    assert not [e for kept in two.cells(there) for row in kept.rows.values() for e in row.errors]


@pytest.mark.slow
def test_a_worker_killed_and_a_node_removed_lose_nothing(nodes, four, tmp_path):
    cluster, second = nodes
    whole = Journal(tmp_path / "whole.sqlite")
    expected = answers(whole, killed.main(str(whole.path), 0.0))
    journal, done = Journal(tmp_path / "j.sqlite"), set()

    def disturb(now):
        if now.done >= 4 and "worker" not in done:
            done.add("worker")
            four.up[0].close()
        if now.done >= 10 and "node" not in done:
            done.add("node")
            cluster.remove_node(second)

    id = ran(four, journal, between=disturb)
    assert done == {"worker", "node"}
    assert answers(journal, id) == expected


@pytest.mark.slow
def test_a_cluster_that_is_not_there():
    with pytest.raises(InputError, match="cannot be reached"):
        Cluster("127.0.0.1:1")
