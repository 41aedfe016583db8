"""The head node is lost, and with it what Ray knows: the job waits for another and goes on from its checkpoint."""

import signal
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.e2e.job import Job
from tests.e2e.ray.conftest import LONG, MNIST_RAY
from tests.e2e.ray.nodes import Nodes, wait_until

Run = Callable[..., Job]
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

GIVES_UP_S = 5  # Ray's own 60 s, after which its processes leave a head that is gone


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    found = Nodes(_system_config={"gcs_rpc_server_reconnect_timeout_s": GIVES_UP_S})
    yield found
    found.close()


def test_a_head_that_is_killed_ends_the_workers_and_the_job_goes_on_under_the_next(run: Run, nodes: Nodes) -> None:
    nodes.add()
    job = run(MNIST_RAY, *LONG, "workers.max=1", "commit.steps=20")
    job.wait(lambda r: r.event == "CheckpointWritten" and r.get("step") >= 20)
    before = [psutil.Process(r.pid) for r in job.of("AgentStarted")]
    nodes.kill_head()
    wait_until(lambda: not any(p.is_running() for p in before), within_s=60.0)
    nodes.replace_head()
    nodes.add()
    loaded = job.wait(lambda r: r.event == "CheckpointLoaded")
    assert loaded.get("step") >= 20
    job.wait_step(loaded.get("step") + 10)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143, job.transcript()
