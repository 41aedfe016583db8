"""Checkpoints on storage that outlives every host: a job goes on from there alone."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from tests.e2e.job import Job
from tests.e2e.ray.conftest import LONG, MNIST_RAY
from tests.e2e.ray.nodes import Nodes
from tests.s3 import s3_server

pytestmark = pytest.mark.ray

Run = Callable[..., Job]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A server that speaks S3, with one empty bucket; yields the environment by which fsspec finds it."""
    with s3_server() as env:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        fsspec.filesystem("s3").mkdir("checkpoints")
        yield env


@pytest.fixture(params=["file", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """What a job is told about its storage."""
    if request.param == "file":
        return (f"checkpoint.uri=file://{tmp_path}/there",)
    env = request.getfixturevalue("s3")
    return ("checkpoint.uri=s3://checkpoints/runs", f"ray.runtime_env={json.dumps({'env_vars': env})}")


def test_a_job_whose_run_directory_is_lost_goes_on_from_its_storage(
    run: Run, nodes: Nodes, storage: tuple[str, ...]
) -> None:
    nodes.add()
    job = run(MNIST_RAY, *LONG, "workers.max=1", "commit.steps=20", "checkpoint.keep=2", *storage)
    job.wait(lambda r: r.event == "CheckpointWritten", count=3)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143, job.transcript()
    assert not job.of("CheckpointFailed")
    last = job.of("CheckpointWritten")[-1].get("step")
    shutil.rmtree(job.run_dir.path)

    again = run(MNIST_RAY, *LONG, "workers.max=1", *storage)
    assert again.wait(lambda r: r.event == "CheckpointLoaded").get("step") == last
    again.wait_step(last + 10)
    again.process.send_signal(signal.SIGTERM)
    assert again.finish() == 143, again.transcript()
