"""`elastic.predict` gives one row a sample, in order, whoever computed it and whoever was lost."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.job import Job

Start = Callable[..., Job]
SCRIPT = Path(__file__).parent / "scripts" / "predicting.py"


@pytest.mark.parametrize("kill", [False, pytest.param(True, marks=pytest.mark.chaos)])
def test_predictions_of_two_workers_are_those_of_one(start: Start, kill: bool) -> None:
    job = start(SCRIPT)
    if kill:
        job.wait(lambda r: r.event == "WorldFormed", count=2)
        job.kill(rank=0)
    assert job.finish() == 0, job.transcript()
    assert "predictions are Keras's" in job.output(), job.transcript()
    summary = json.loads(job.run_dir.summary.read_text())
    assert summary["samples_seen"] == summary["samples_owed"] == 4999
    assert summary["status"] == "finished"
