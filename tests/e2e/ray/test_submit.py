"""`ray job submit -- elastic run ...`, and `ray job stop`. Needs `ray[default]`, of which Ray's job server is part."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs ray[default], which has Ray's job server")

from ray.job_submission import JobStatus, JobSubmissionClient

from elastic.events import read
from elastic.rundir import RunDir
from tests.e2e.job import BIN
from tests.e2e.ray.conftest import LONG, MNIST_RAY, QUICK
from tests.e2e.ray.nodes import Nodes, wait_until

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    found = Nodes(head_cpus=2, include_dashboard=True, dashboard_port=8365)
    yield found
    found.close()


@pytest.fixture
def client(cluster: Nodes) -> JobSubmissionClient:
    return JobSubmissionClient(f"http://{cluster.dashboard}")


def submit(client: JobSubmissionClient, run_dir: Path, *sets: str) -> str:
    options = " ".join(f"--set {pair}" for pair in sets)
    line = f"{sys.executable} {BIN / 'elastic'} run {MNIST_RAY} --run-dir {run_dir} {options}"
    return str(client.submit_job(entrypoint=line))


def test_a_submitted_job_reaches_its_goal_on_the_cluster(client: JobSubmissionClient, tmp_path: Path) -> None:
    job = submit(client, tmp_path / "run", *QUICK)
    wait_until(lambda: client.get_job_status(job).is_terminal(), within_s=120.0)
    assert client.get_job_status(job) is JobStatus.SUCCEEDED, client.get_job_logs(job)
    assert "status               finished" in client.get_job_logs(job)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "finished"


def test_a_job_that_is_stopped_drains(cluster: Nodes, client: JobSubmissionClient, tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "run")
    job = submit(client, run_dir.path, *LONG, "commit.steps=100000")
    wait_until(lambda: any(r.event == "FirstStepDone" for r in read(run_dir.events)), within_s=120.0)
    client.stop_job(job)
    wait_until(lambda: client.get_job_status(job).is_terminal())
    assert client.get_job_status(job) is JobStatus.STOPPED
    wait_until(lambda: any(r.event == "CheckpointWritten" for r in read(run_dir.events)))
    wait_until(lambda: not [a for a in cluster.actors() if a["Name"].startswith("mnist/")])
