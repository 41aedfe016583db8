"""Each deed, done by a real process that listens as a worker does."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic.chaos import cgroup
from elastic.deeds import EXIT_CODE, Deed, ask

# Like a worker: it listens, and calls the callback after each "step". It prints a line a step.
WORKER = """
import sys, time, types
from pathlib import Path

class Callback:
    pass

sys.modules["keras"] = types.SimpleNamespace(callbacks=types.SimpleNamespace(Callback=Callback))
from elastic.worker.deeds import Deeds

deeds = Deeds(Path(sys.argv[1]))
deeds.listen()
callback = deeds.callback()
while True:
    time.sleep(0.01)
    callback.on_train_batch_end(0)
    print(int(time.time()), flush=True)
"""
PATIENCE_S = 20.0


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def do(folder: Path, pid: int, deed: Deed, amount: float = 0.0) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not ask(folder, pid, deed, amount):
        assert time.monotonic() < deadline, "the worker does not listen"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("deed", "code"),
    [
        (Deed.SEGFAULT, -signal.SIGSEGV),
        (Deed.ABORT, -signal.SIGABRT),
        (Deed.EXIT, EXIT_CODE),
        (Deed.RAISE, 1),
    ],
)
def test_a_deed_ends_the_worker_as_its_name_says(
    tmp_path: Path, worker: subprocess.Popen[str], deed: Deed, code: int
) -> None:
    do(tmp_path, worker.pid, deed)
    _, errors = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == code
    assert ("an exception in a step" in errors) == (deed is Deed.RAISE)


def test_a_child_outlives_the_worker_and_holds_its_output(tmp_path: Path, worker: subprocess.Popen[str]) -> None:
    do(tmp_path, worker.pid, Deed.STDOUT_CHILD, 1.0)
    assert worker.wait(PATIENCE_S) == -signal.SIGKILL
    began = time.monotonic()
    worker.communicate(timeout=PATIENCE_S)  # until the child, too, has ended
    assert time.monotonic() - began > 0.3


@pytest.mark.parametrize("deed", [Deed.HOLD_GIL, Deed.SPIN])
def test_a_worker_that_stands_still_goes_on_afterwards(
    tmp_path: Path, worker: subprocess.Popen[str], deed: Deed
) -> None:
    assert worker.stdout is not None
    worker.stdout.readline()
    do(tmp_path, worker.pid, deed, 1.0)
    longest, last, deadline = 0.0, time.monotonic(), time.monotonic() + 2.5
    while time.monotonic() < deadline:
        worker.stdout.readline()
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert 0.8 < longest < 1.9


def test_a_clock_jumps_forward(tmp_path: Path, worker: subprocess.Popen[str]) -> None:
    assert worker.stdout is not None
    before = int(worker.stdout.readline())
    do(tmp_path, worker.pid, Deed.CLOCK, 3600.0)
    deadline = time.monotonic() + PATIENCE_S
    while int(worker.stdout.readline()) < before + 3600:
        assert time.monotonic() < deadline


def test_descriptors_run_out_and_come_back(tmp_path: Path, worker: subprocess.Popen[str]) -> None:
    folder = Path(f"/proc/{worker.pid}/fd")

    def limit() -> int:
        line = next(x for x in Path(f"/proc/{worker.pid}/limits").read_text().splitlines() if "open files" in x)
        return int(line.split()[3])

    before = limit()
    do(tmp_path, worker.pid, Deed.FDS, 1.0)
    deadline = time.monotonic() + PATIENCE_S
    while len(list(folder.iterdir())) < limit():
        assert time.monotonic() < deadline
    assert limit() < before
    while limit() != before:
        assert time.monotonic() < deadline
    assert len(list(folder.iterdir())) < 32


def test_memory_runs_out(tmp_path: Path, worker: subprocess.Popen[str]) -> None:
    def address_space() -> tuple[int, int]:
        line = next(x for x in Path(f"/proc/{worker.pid}/limits").read_text().splitlines() if "address space" in x)
        pages = int(Path(f"/proc/{worker.pid}/statm").read_text().split()[0])
        return pages * os.sysconf("SC_PAGESIZE"), -1 if "unlimited" in line else int(line.split()[3])

    assert address_space()[1] == -1
    do(tmp_path, worker.pid, Deed.MEMORY, 64.0)
    deadline = time.monotonic() + PATIENCE_S
    while (space := address_space())[1] == -1 or space[0] < space[1] - (1 << 24):
        assert time.monotonic() < deadline, space


@pytest.mark.skipif(cgroup.obstacle() is not None, reason=str(cgroup.obstacle()))
def test_a_worker_that_takes_all_memory_is_killed_by_the_kernel(tmp_path: Path, worker: subprocess.Popen[str]) -> None:
    assert worker.stdout is not None
    worker.stdout.readline()
    undo = cgroup.confine([worker.pid], 64 << 20)
    try:
        do(tmp_path, worker.pid, Deed.HOG)
        worker.communicate(timeout=PATIENCE_S)
        assert worker.returncode == -signal.SIGKILL
    finally:
        undo()


def test_a_process_that_does_not_listen_is_not_asked(tmp_path: Path) -> None:
    assert not ask(tmp_path, os.getpid(), Deed.RAISE, 0.0)
    os.mkfifo(tmp_path / "7")
    assert not ask(tmp_path, 7, Deed.RAISE, 0.0)  # dead: nobody reads its pipe
