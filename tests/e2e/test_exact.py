"""What a step changes is changed once a step, whoever dies, and does not depend on who computes it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elastic.views.audit import audit, tell
from tests.e2e import counted, schedules
from tests.e2e.job import Job
from tests.e2e.schedules import Fault, Schedule

Start = Callable[..., Job]
EPOCHS = counted.PATIENCE + 1


@pytest.fixture
def counting(start: Start, tmp_path: Path) -> Start:
    """Starts the counting job with some settings."""
    (tmp_path / "counted.py").write_text(Path(counted.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    config = tmp_path / "counted.yaml"
    config.write_text(
        "name: counted\nmodel: counted:model\ndata: counted:data\ncallbacks: counted:callbacks\n"
        "epochs: 100\nbatch: {global: 32}\n"
    )

    def begin(name: str, *sets: str, **env: str) -> Job:
        out = tmp_path / name
        out.mkdir()
        return start(config, *sets, run_dir=out / "run", env={"COUNTED_OUT": str(out), **env})

    return begin


def accounts(job: Job) -> list[dict[str, Any]]:
    """Return what each worker had at the job's end."""
    assert job.finish() == 0, job.transcript()
    return [json.loads(path.read_text()) for path in sorted(job.run_dir.path.parent.glob("*.json"))]


def test_kills_cost_no_pass_and_do_none_twice(counting: Start) -> None:
    job = counting("killed", COUNTED_STEP_S="0.1")
    for rank, step in ((1, 10), (0, 40), (1, 70)):
        job.wait_step(step)
        generation = job.generation()
        job.kill(rank)
        job.wait(lambda r, g=generation: r.event == "FirstStepDone" and r.generation > g, count=2)
    found = accounts(job)
    owed = EPOCHS * counted.SAMPLES // 32  # EarlyStopping has counted the epochs through all of it
    assert len(found) == 2, job.transcript()
    for account in found:
        assert account["steps"] == owed, job.transcript()
        passes = [value for name, value in account["variables"].items() if name.endswith("passes")]
        assert passes == [owed], job.transcript()
    moving = [{n: v for n, v in a["variables"].items() if "moving" in n} for a in found]
    assert moving[0]
    assert moving[0] == moving[1]
    assert json.loads(job.run_dir.summary.read_text())["epochs"] == EPOCHS


def test_two_workers_in_micro_batches_come_to_what_one_comes_to(counting: Start) -> None:
    weights = []
    for name, sets in (("one", ("workers.max=1",)), ("two", ("batch.micro=5",))):
        job = counting(name, "epochs=2", "standby.size=0", *sets, COUNTED_MODEL="plain")
        variables = accounts(job)[0]["variables"]
        weights.append(np.concatenate([np.ravel(v) for v in variables.values()]))
    assert np.abs(weights[0] - weights[1]).max() < 1e-6


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(Schedule(1, 3, 8, 4, (Fault(30, kill=1), Fault(60, slots=2))), id="fewer samples than workers"),
        pytest.param(
            Schedule(2, 37, 32, 2, (Fault(20, slots=3), Fault(41, kill=0), Fault(60, slots=1, at_once=True))),
            id="a small last batch",
            marks=pytest.mark.chaos,
        ),
    ],
)
def test_small_epochs_are_exact_through_kills_and_resizes(start: Start, tmp_path: Path, schedule: Schedule) -> None:
    epochs = 150 // schedule.steps
    job = schedules.start(start, tmp_path, schedule, epochs=epochs)
    schedules.live_through(job, schedule)
    assert job.finish() == 0, job.transcript()
    found = audit(job.run_dir.audit)
    assert found.exact, "\n".join(tell(found))
    assert len(found.epochs) == epochs
    assert found.undone == 0, job.transcript()
