"""TensorBoard's scalars as a view of rank 0's facts."""

import subprocess
from pathlib import Path

import pytest
import tensorflow as tf

from elastic.events import EpochEnded, FirstStepDone, JobFinished, Progressed, WorldFormed
from elastic.worker.scalars import Scalars


def progressed(step: int, size: int = 2, loss: float = 1.5) -> Progressed:
    return Progressed(0, 3, step, step, 64 * step, 5000, 64 * step, 640.0, size, {"loss": loss})


def written(folder: Path) -> list[tuple[int, str, float]]:
    files = [str(p) for p in sorted(folder.iterdir())]
    events = [tf.compat.v1.Event.FromString(r.numpy()) for r in tf.data.TFRecordDataset(files)]
    return [(e.step, v.tag, float(tf.make_ndarray(v.tensor))) for e in events for v in e.summary.value]


def test_metrics_are_written_by_step_with_the_world_and_its_pauses(tmp_path: Path) -> None:
    scalars = Scalars(str(tmp_path), lambda: True)
    facts = [
        WorldFormed(size=2, root=0, epoch=0, step=0),
        FirstStepDone(step=1, pause_s=0.0, first_step_s=0.5),
        progressed(20),
        WorldFormed(size=1, root=0, epoch=0, step=30),
        FirstStepDone(step=31, pause_s=0.75, first_step_s=0.1),
        EpochEnded(0, 79, 5000, {"loss": 1.0, "val_loss": 0.5}, 4.0, 1),
        JobFinished(1, 79, 5000, 5000, {}),
    ]
    for fact in facts:
        scalars.emit(fact)
    assert written(tmp_path) == [
        (0, "elastic/world_size", 2.0),
        (20, "elastic/world_size", 2.0),
        (20, "elastic/samples_per_s", 640.0),
        (20, "step/loss", 1.5),
        (30, "elastic/world_size", 1.0),
        (31, "elastic/pause_s", 0.75),
        (79, "loss", 1.0),
        (79, "val_loss", 0.5),
    ]


def test_a_recovery_waits_for_no_file(tmp_path: Path) -> None:
    scalars = Scalars(str(tmp_path / "tb"), lambda: True)
    scalars.emit(WorldFormed(size=2, root=0, epoch=0, step=0))
    scalars.emit(FirstStepDone(step=1, pause_s=0.5, first_step_s=0.5))
    assert not (tmp_path / "tb").exists()


def test_only_rank_0_writes(tmp_path: Path) -> None:
    scalars = Scalars(str(tmp_path / "tb"), lambda: False)
    for step in (1, 2):
        scalars.emit(progressed(step))
    assert not (tmp_path / "tb").exists()


def test_a_disk_that_refuses_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("a file")
    scalars = Scalars(str(tmp_path / "taken"), lambda: True)
    for step in (1, 2):
        scalars.emit(progressed(step))
        scalars.emit(EpochEnded(0, step, 64, {"loss": 1.0}, 1.0, 2))
    assert capsys.readouterr().err.count("scalars for TensorBoard are no longer written") == 1


def test_a_disk_that_fills_up_stops_no_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a full disk needs the right to mount: {done.stderr.strip()}")
    try:
        scalars = Scalars(str(folder), lambda: True)
        for step in range(200):
            scalars.emit(progressed(step))
            scalars.emit(EpochEnded(0, step, 64, {"loss": 1.0}, 1.0, 2))
        assert capsys.readouterr().err.count("scalars for TensorBoard are no longer written") <= 1
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
