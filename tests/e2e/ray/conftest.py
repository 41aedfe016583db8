"""One cluster for each file of tests; each test adds the nodes that it needs."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.e2e import job as jobs
from tests.e2e.ray.nodes import Nodes

MNIST_RAY = jobs.ROOT / "configs" / "mnist_ray.yaml"
QUICK = ("epochs=3", "batch.per_worker=32")
LONG = ("epochs=1000", "batch.per_worker=32", "tensorboard=false")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    found = Nodes()
    yield found
    found.close()


@pytest.fixture
def nodes(cluster: Nodes) -> Iterator[Nodes]:
    """The file's cluster, with no node but the head."""
    yield cluster
    cluster.clear()


@pytest.fixture
def run(nodes: Nodes, start: Callable[..., jobs.Job]) -> Callable[..., jobs.Job]:
    """Starts a job on the cluster, under `elastic run`."""
    return partial(start, env={"RAY_ADDRESS": nodes.address})
