"""Fixtures for jobs of real processes."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e import job as jobs

MNIST = jobs.ROOT / "configs" / "mnist.yaml"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/e2e" in str(item.path):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., jobs.Job]]:
    """Starts jobs in this test's directory, and ends them with the test."""
    started: list[jobs.Job] = []

    def start_job(*args: object, **kwargs: object) -> jobs.Job:
        job = partial(jobs.start, tmp_path)(*args, **kwargs)  # type: ignore[arg-type]
        started.append(job)
        return job

    yield start_job
    for job in started:
        job.close()
