"""`elastic run` with a cluster of its own: started, used, gone."""

import json
from collections.abc import Callable

import pytest

from tests.e2e.job import Job
from tests.e2e.ray.conftest import MNIST_RAY

Start = Callable[..., Job]


@pytest.mark.ray
def test_a_killed_worker_heals_in_place_on_a_cluster_of_the_jobs_own(start: Start) -> None:
    job = start(MNIST_RAY, "epochs=30", "batch.per_worker=32")
    job.wait_stepping(generation=1, workers=2)
    job.wait(lambda r: r.event == "StandbyReady")
    job.kill(rank=0)
    job.wait_stepping(generation=2, workers=2)
    assert job.finish() == 0, job.transcript()
    summary = json.loads(job.run_dir.summary.read_text())
    assert summary["status"] == "finished"
    assert summary["workers_lost"] == 1
    assert summary["lost_steps"] == 0
    assert summary["samples_seen"] == summary["samples_owed"]
    assert summary["world_sizes"] == [2, 2]
    assert [r.get("source") for r in job.of("WorkerStarted")].count("standby") == 1
    assert job.processes() == []
