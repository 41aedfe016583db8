"""A user's own Keras script, with `elastic.fit` in the place of `model.fit`."""

import csv
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.job import Job

SCRIPT = Path(__file__).parent / "scripts" / "plain_keras.py"
EPOCHS, STEPS_AN_EPOCH = 6, 79  # 5,000 samples in global batches of 64
ACCURACY = re.compile(r"test accuracy: (\d\.\d+)")
REACHABLE = 0.90  # an undisturbed run comes to about 0.95


def epochs_in(csv_file: Path) -> list[int]:
    with csv_file.open(newline="") as file:
        return [int(row["epoch"]) for row in csv.DictReader(file)]


def test_a_script_runs_without_a_launcher(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    assert epochs_in(tmp_path / "history.csv") == list(range(EPOCHS))
    (accuracy,) = ACCURACY.findall(done.stdout)
    assert float(accuracy) >= REACHABLE


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.chaos)])
def test_a_script_outlives_a_killed_worker(start: Callable[..., Job], tmp_path: Path, rank: int) -> None:
    job = start(SCRIPT)
    job.wait_stepping(generation=1, workers=2)
    job.wait_step(STEPS_AN_EPOCH + 10)
    killed = job.kill(rank)
    job.wait_stepping(generation=2, workers=2)
    assert job.finish() == 0, job.transcript()

    assert [lost.get("worker_pid") for lost in job.of("WorkerLost") if lost.get("root_cause")] == [killed]
    (finished,) = job.of("JobFinished")
    assert (finished.get("epochs"), finished.get("step")) == (EPOCHS, EPOCHS * STEPS_AN_EPOCH)
    assert finished.get("samples") == finished.get("samples_owed")
    assert epochs_in(tmp_path / "history.csv") == list(range(EPOCHS)), job.transcript()
    printed = "".join(log.read_text() for log in job.run_dir.logs.glob("worker-*.log"))
    (accuracy,) = ACCURACY.findall(printed)  # what follows elastic.fit ran once
    assert float(accuracy) >= REACHABLE
