"""`elastic run` on a run directory that has no room left, with a launcher that says nothing."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic.config import Config, Job
from elastic.errors import ExitCode
from elastic.launch import run as runs
from elastic.launch.run import Supervisor
from elastic.launch.screen import Screen
from elastic.rundir import RunDir

STALL_S = 1.0


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RunDir]:
    folder = tmp_path / "run"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a full disk needs the right to mount: {done.stderr.strip()}")
    yield RunDir(folder).create()
    subprocess.run(["umount", "-l", str(folder)], check=True)


def launch(directory: RunDir, seconds: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a launcher that says nothing and ends after a while with 0."""
    monkeypatch.setattr(runs, "QUIET_S", 0.1)
    config = Config(job=Job(stall_s=STALL_S, max_restarts=0))
    line = [sys.executable, "-c", f"import time; time.sleep({seconds})"]
    return Supervisor(config, directory, Screen(directory)).run(line, dict(os.environ))


def fill(directory: RunDir) -> None:
    with (directory.path / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 512)


def test_silence_is_no_stall_while_there_is_no_room_to_speak(
    directory: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(directory)
    assert launch(directory, 2.5 * STALL_S, monkeypatch) == ExitCode.GOAL_REACHED
    said = capsys.readouterr()
    assert "events are not written, training goes on" in said.err
    assert "no summary.json" in said.out
    assert sorted(p.name for p in directory.path.iterdir() if p.name.startswith(".")) == []


def test_silence_where_there_is_room_is_one(
    directory: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(directory, 30.0, monkeypatch) == ExitCode.FAILED
    assert "nothing happened for 1 s" in capsys.readouterr().err
