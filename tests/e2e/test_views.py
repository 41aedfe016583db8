"""What a user sees of a real run: status, report, metrics, events on a full disk, a named straggler."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elastic.events import Record
from tests.e2e.conftest import MNIST
from tests.e2e.job import BIN, Job, pulse_of

Start = Callable[..., Job]
LONG = ("epochs=1000", "batch.per_worker=32")


def elastic(*words: object) -> str:
    """Run a command of the command line to its end; return what it prints."""
    line = [str(BIN / "elastic"), *map(str, words)]
    env = os.environ | {"COLUMNS": "120"}
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def status(job: Job) -> dict[str, Any]:
    return dict(json.loads(elastic("status", job.run_dir.path, "--json")))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_run_that_heals_can_be_watched_and_written_up(start: Start) -> None:
    port = free_port()
    job = start(MNIST, *LONG, f"metrics.port={port}")
    job.wait(lambda r: r.event == "StandbyReady")
    job.wait(lambda r: r.event == "Progressed", count=3)
    before = status(job)
    assert before["phase"] in {"training", "validating", "saving"}
    assert (before["size"], before["standbys"]) == (2, 1)
    assert [m["rank"] for m in before["members"]] == [0, 1]
    for member in before["members"]:
        assert member["pid"] == job.pid_of(member["rank"])
        assert 0.0 <= member["heartbeat_s"] < 5.0
        assert 0.0 < member["own_s"] < member["step_s"] * 1.5
    job.kill(1)
    job.wait_stepping(generation=2, workers=2)
    job.wait(lambda r: r.event == "Progressed" and r.generation == 2)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'elastic_recoveries_total{cause="crash"} 1.0\n' in text
    assert "elastic_world_generation 2.0\n" in text
    page = elastic("status", job.run_dir.path)
    assert re.search(r"rank 1 on localhost was killed by SIGKILL; replaced from standby in \d\.\d\d s; 0 steps", page)
    (recovery,) = status(job)["recoveries"]
    assert sum(recovery["phases_s"].values()) == pytest.approx(recovery["end"] - recovery["begin"], abs=1e-3)
    assert recovery["end"] - recovery["begin"] < 20.0
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143, job.transcript()
    ended = status(job)
    assert (ended["phase"], ended["silent_s"]) == ("stopped", None)
    assert ended["summary"]["goodput"] == pytest.approx(
        ended["seconds"]["useful"] / sum(took for phase, took in ended["seconds"].items() if phase != "off"), abs=1e-3
    )
    html, *_ = elastic("report", job.run_dir.path).splitlines()
    assert "replaced from standby" in Path(html).read_text()
    assert not list(job.run_dir.heartbeats.iterdir())


def test_a_stock_launchers_run_can_be_watched_too(start: Start) -> None:
    job = start(MNIST, *LONG, launcher="horovodrun")
    job.wait(lambda r: r.event == "Progressed", count=2)
    found = status(job)
    assert (found["job"], found["size"], found["summary"]["status"]) == ("mnist", 2, "running")
    assert found["eta_s"] > 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a run directory on a disk of its own, of one megabyte."""
    folder = tmp_path / "run"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small disk needs the right to mount: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Leave not one byte on a disk; return what takes it."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 512)
    assert shutil.disk_usage(disk).free == 0
    return filler


def talks(folder: Path) -> None:
    """Leave a job that prints a line a step, so that logs fill up, too."""
    (folder / "talker.py").write_text(
        "import keras\n"
        "class Talker(keras.callbacks.Callback):\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        print('x' * 200, flush=True)\n"
        "def callbacks():\n"
        "    return [Talker()]\n"
    )


@pytest.mark.chaos
def test_a_full_disk_stops_the_facts_and_never_the_training(start: Start, tmp_path: Path, small_disk: Path) -> None:
    talks(tmp_path)
    job = start(MNIST, *LONG, "checkpoint.enabled=false", "callbacks=talker:callbacks")
    job.wait_stepping(generation=1, workers=2)
    job.wait(lambda r: r.event == "Progressed")
    filler = fill(small_disk)
    silent_from = max(int(r.get("step", 0)) for r in job.poll())
    before = {pid: cpu(pid) for pid in (job.pid_of(0), job.pid_of(1))}
    wait_for_steps(job, silent_from + 400)
    assert all(cpu(pid) > used for pid, used in before.items())
    filler.unlink()

    def came_back(record: Record) -> bool:
        return record.event == "Progressed" and int(record.get("step")) > silent_from + 400

    back = job.wait(came_back)
    assert back.generation == 1, job.transcript()  # nobody was lost or started again meanwhile
    assert job.of("FactsLost"), job.transcript()
    assert len(job.of("JobStarted")) == 1, job.transcript()
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143, job.transcript()


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return float(fields[11]) + float(fields[12])


def wait_for_steps(job: Job, step: int) -> None:
    """Return once both workers have done a step, as their pulses tell, the disk being full."""
    pulses = [pulse_of(job.pid_of(rank)) for rank in (0, 1)]
    deadline = time.monotonic() + 60.0
    try:
        while min(p.read().step for p in pulses) < step:
            assert time.monotonic() < deadline, job.transcript()
            assert job.process.poll() is None, job.transcript()
            time.sleep(0.05)
    finally:
        for p in pulses:
            p.close()


SLOW = """
import time
import keras
from elastic.examples.mnist import model

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        import horovod.tensorflow as hvd
        time.sleep(0.08 if hvd.rank() == 1 else 0.01)

def callbacks():
    return [Slow()]
"""


@pytest.mark.chaos
def test_a_worker_that_holds_the_others_up_is_named(start: Start, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    job = start(MNIST, *LONG, "callbacks=slow:callbacks", launcher="horovodrun")
    named = job.wait(lambda r: r.event == "WorkerStraggled")
    assert (named.get("of_rank"), named.get("of_host")) == (1, "localhost")
    assert named.get("own_s") > 1.5 * named.get("peers_s")
    zero, one = status(job)["members"]
    assert (zero["straggles"], one["straggles"]) == (False, True)
    assert zero["step_s"] == pytest.approx(one["step_s"], rel=0.5)  # their steps are equally long, which hides it
