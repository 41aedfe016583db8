"""Whatever happens, each sample is used once an epoch and no completed step is done again."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from elastic.views.audit import audit, tell
from tests.e2e import schedules
from tests.e2e.conftest import MNIST
from tests.e2e.job import Job

Start = Callable[..., Job]
SCHEDULES = int(os.environ.get("ELASTIC_SCHEDULES", "50"))
STEPS = 200  # faults come within the first two thirds of these


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, SCHEDULES))])
def test_each_sample_is_used_once_an_epoch(start: Start, tmp_path: Path, seed: int) -> None:
    schedule = schedules.draw(seed, steps=STEPS)
    epochs = max(2, -(-STEPS // schedule.steps))
    job = schedules.start(start, tmp_path, schedule, epochs=epochs)
    schedules.live_through(job, schedule)
    assert job.finish() == 0, f"{schedule}\n{job.transcript()}"
    found = audit(job.run_dir.audit)
    assert found.exact, f"{schedule}\n" + "\n".join(tell(found))
    assert len(found.epochs) == epochs
    # An epoch's checkpoint is written while the next epoch trains: without a survivor, two may be gone.
    assert found.undone <= 2 * schedule.steps * schedules.losses(job), f"{schedule}\n{job.transcript()}"
    assert found.steps == epochs * schedule.steps
    summary = json.loads(job.run_dir.summary.read_text())
    assert summary["samples_seen"] == summary["samples_owed"] == epochs * schedule.samples


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_twenty_kills_at_random_moments_cost_no_step(start: Start) -> None:
    job = start(MNIST, "epochs=100000", "batch.global=64", "restart.crash.limit=100", "restart.reentry.limit=100")
    job.wait_stepping(generation=1, workers=2)
    for i in range(20):
        schedules.pause(i)
        generation = job.generation()
        job.kill(rank=i % 2)
        job.wait(lambda r, g=generation: r.event == "FirstStepDone" and r.generation > g, count=2)
    lost = job.of("CollectiveFailed")
    for failed in lost:
        formed = next(r for r in job.of("WorldFormed") if r.time > failed.time)
        assert formed.get("step") >= failed.get("step"), job.transcript()
    assert not job.of("CheckpointLoaded")
