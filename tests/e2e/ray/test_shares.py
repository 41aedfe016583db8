"""A job on Ray takes what is available to it, and no more."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.job import Job
from tests.e2e.ray.conftest import LONG, MNIST_RAY, QUICK
from tests.e2e.ray.nodes import Nodes, wait_until

pytestmark = pytest.mark.ray

Run = Callable[..., Job]

TELLING = """
import os
from pathlib import Path

from elastic.examples.mnist import model as mnist


def model():
    Path(f"gpus-{os.getpid()}").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
    return mnist()
"""


def test_two_jobs_share_a_cluster(run: Run, nodes: Nodes, tmp_path: Path) -> None:
    nodes.add(cpus=3)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first = run(MNIST_RAY, *LONG, "workers.max=2", run_dir=tmp_path / "one" / "run")
    first.wait_stepping(generation=1, workers=2)
    wait_until(lambda: nodes.free_cpus() == 1.0)
    second = run(MNIST_RAY, *LONG, "workers.max=2", "workers.start=1", run_dir=tmp_path / "two" / "run")
    second.wait_stepping(generation=1, workers=1)
    assert second.of("WorldFormed")[0].get("size") == 1
    first.process.send_signal(signal.SIGTERM)
    assert first.finish() == 143
    second.wait_world(2, size=2)
    second.process.send_signal(signal.SIGTERM)
    assert second.finish() == 143


def test_each_worker_sees_the_gpu_that_ray_gave_to_its_slot(run: Run, nodes: Nodes, tmp_path: Path) -> None:
    nodes.add(cpus=2, num_gpus=2)
    (tmp_path / "telling.py").write_text(TELLING)
    job = run(MNIST_RAY, *QUICK, "model=telling:model", "ray.gpus=1", "standby.size=0")
    assert job.finish() == 0, job.transcript()
    assert sorted(path.read_text() for path in tmp_path.glob("gpus-*")) == ["0", "1"]


def test_each_worker_sees_its_nodes_gpus_when_asked_for(run: Run, nodes: Nodes, tmp_path: Path) -> None:
    nodes.add(cpus=2, num_gpus=2)
    (tmp_path / "telling.py").write_text(TELLING)
    sets = ("model=telling:model", "ray.gpus=1", "ray.gpus_seen=node", "standby.size=0")
    job = run(MNIST_RAY, *QUICK, *sets)
    assert job.finish() == 0, job.transcript()
    seen = [path.read_text() for path in tmp_path.glob("gpus-*")]
    assert len(seen) == 2
    assert len(set(seen)) == 1
    assert sorted(seen[0].split(",")) == ["0", "1"]


def test_a_resource_of_ones_own_decides_where_slots_are(run: Run, nodes: Nodes) -> None:
    nodes.add(cpus=4)
    special = nodes.add(cpus=4, resources={"fast_disk": 1.0})
    job = run(MNIST_RAY, *QUICK, "ray.resources.fast_disk=0.5")
    assert job.finish() == 0, job.transcript()
    assert {r.host for r in job.of("AgentStarted")} == {special.host}
    assert len(job.of("AgentStarted")) == 2


def test_the_autoscaler_is_asked_while_the_job_runs(run: Run, nodes: Nodes) -> None:
    nodes.add(cpus=2)
    job = run(MNIST_RAY, *LONG, "workers.max=4", "workers.start=2")
    job.wait_stepping(generation=1, workers=2)
    wait_until(lambda: nodes.requested().count(b"CPU") == 4)
    nodes.add(cpus=2)  # as an autoscaler would
    job.wait(lambda r: r.event == "WorldFormed" and r.get("size") == 4)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143
    wait_until(lambda: nodes.requested() == b"[]")
