"""A pool's keeper and those who claim from it, over the real socket and with real processes.

The processes are small: they speak a worker's protocol and load nothing.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from elastic.agent import claim as claim_module
from elastic.agent.claim import UNKNOWN_EXIT, Claimed, claim, count
from elastic.agent.keeper import Keeper
from elastic.agent.loop import Loop
from elastic.agent.meeting import Meeting
from elastic.agent.pool import BACKOFF_S, SETTLE_S
from elastic.agent.process import WorkerProcess, spawn
from elastic.channel import Go, Prepare
from elastic.events import Event, StandbyLost, StandbyReady

T = TypeVar("T", bound=Event)
PYTHON = sys.executable
DEADLINE_S = 20.0
SILENT_S = 3600.0  # the small processes have no heartbeat

# Started as `... -m elastic.worker.main CHANNEL PULSE AGENT_PID`. It outlives its agent, unless it is killed.
WORKER = f"""#!{PYTHON} -ISE
import json, mmap, os, signal, socket, sys

channel = socket.socket(fileno=int(sys.argv[3])).makefile("rwb", buffering=0)
pulse = memoryview(mmap.mmap(int(sys.argv[4]), mmap.PAGESIZE)).cast("q")

def hear():
    line = channel.readline()
    while not line:
        signal.pause()
    return json.loads(line)

config = hear()["config"]
if config["dies"]:
    os._exit(3)
ready = {{"tag": "Ready", "rss_bytes": 1, "took_s": 0.1, "sources": config["sources"]}}
channel.write(json.dumps(ready).encode() + b"\\n")
go = hear()
pulse[2] = 42
print("hello from", go["host"], flush=True)
print("and more", file=sys.stderr, flush=True)
if "code" in go["env"]:
    os._exit(int(go["env"]["code"]))
hear()
"""

CLAIMER = """
import os, signal, sys
from pathlib import Path
from elastic.agent.claim import claim
from elastic.agent.meeting import Meeting

found = claim(Meeting(Path(sys.argv[1])))
print(found.worker.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@dataclass
class Host:
    """A host with a keeper, whose clock the test drives, and whose loop runs while a test waits for something."""

    meeting: Meeting
    folder: Path
    config: dict[str, Any]
    now: float = 1000.0
    facts: list[Event] = field(default_factory=list)
    started: list[WorkerProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loop = Loop(lambda: self.now)
        self.meeting.open()
        lock = self.meeting.take_lock()
        assert lock is not None
        prepare = Prepare("/jobs/mnist.yaml", self.config, "/runs/1", standby=True, level="step")
        log = self.folder / "standby.log"
        env = dict(os.environ)
        self.keeper = Keeper(self.loop, self.meeting, lock, self, prepare, env, 1, log, SILENT_S, self.spawn)
        self.keeper.open()
        self.keeper.training()
        self.now += SETTLE_S
        self._threads = ThreadPoolExecutor(2)
        self._closed = False

    def emit(self, event: Event) -> None:
        self.facts.append(event)

    def spawn(self, env: Mapping[str, str]) -> WorkerProcess:
        self.started.append(spawn(env))
        return self.started[-1]

    def all(self, kind: type[T]) -> list[T]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def until(self, condition: Callable[[], Any]) -> None:
        """Run the keeper's loop until something is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited too long; facts: {self.facts}"
            self.loop.step(0.01)

    def meanwhile(self, action: Callable[[], Any]) -> Any:
        """Do something that waits for the keeper."""
        doing = self._threads.submit(action)
        self.until(doing.done)
        return doing.result()

    def warm(self) -> int:
        """Fill the pool; return the standby's pid."""
        before = len(self.all(StandbyReady))
        self.keeper.tend()
        self.until(lambda: len(self.all(StandbyReady)) > before)
        return self.all(StandbyReady)[-1].standby_pid

    def claim(self) -> Claimed | None:
        found: Claimed | None = self.meanwhile(lambda: claim(self.meeting))
        return found

    def close(self) -> None:
        """End what the keeper keeps, once."""
        if not self._closed:
            self._closed = True
            self.keeper.close()
            self._threads.shutdown()


@pytest.fixture
def meeting(tmp_path: Path) -> Meeting:
    return Meeting(tmp_path / "m" / "j")


@pytest.fixture
def host(meeting: Meeting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    worker = tmp_path / "worker"
    worker.write_text(WORKER)
    worker.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(worker))
    monkeypatch.setattr(claim_module, "CLAIM_TIMEOUT_S", DEADLINE_S)  # this machine may be busy
    host = Host(meeting, tmp_path, {"dies": False, "sources": {}})
    yield host
    host.close()


def go(**env: str) -> Go:
    return Go(env, "rejoin", "alpha", 1, generation=3, agent_pid=os.getpid())


def is_over(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 0)[0])


def read_all(host: Host, fd: int) -> bytes:
    """Read what a worker printed, up to its end."""
    parts: list[bytes] = []

    def at_end() -> bool:
        try:
            parts.append(os.read(fd, 1 << 16))
        except BlockingIOError:
            return False
        return parts[-1] == b""

    host.until(at_end)
    return b"".join(parts)


def test_a_claim_gets_the_standby_and_its_job(host: Host) -> None:
    pid = host.warm()
    found = host.claim()
    assert found is not None
    assert found.worker.pid == pid
    assert found.worker.source == "standby"
    assert found.assignment == {"job": "/jobs/mnist.yaml", "config": host.config, "run_dir": "/runs/1"}
    found.worker.kill()
    host.meanwhile(found.worker.reap)


def test_standbys_are_counted_and_none_is_taken(host: Host) -> None:
    assert host.meanwhile(lambda: count(host.meeting)) == 0
    pid = host.warm()
    assert host.meanwhile(lambda: count(host.meeting)) == 1
    assert host.meanwhile(lambda: count(host.meeting)) == 1
    found = host.claim()
    assert found is not None
    assert found.worker.pid == pid
    assert host.meanwhile(lambda: count(host.meeting)) == 0
    found.worker.kill()
    host.meanwhile(found.worker.reap)


def test_a_host_without_a_pool_has_no_standbys(meeting: Meeting) -> None:
    meeting.open()
    assert count(meeting) == 0


def test_a_claimed_worker_is_heard_and_told_as_if_it_had_been_started_here(host: Host) -> None:
    host.warm()
    found = host.claim()
    assert found is not None
    worker = found.worker
    assert worker.pulse.read().step == 0
    assert worker.send(go(code="0"))
    assert read_all(host, worker.outputs[0]) == b"hello from alpha\n"
    assert read_all(host, worker.outputs[1]) == b"and more\n"
    host.until(lambda: is_over(worker.pidfd))
    assert worker.pulse.read().step == 42
    assert host.meanwhile(worker.reap) == 0


@pytest.mark.parametrize("code", [0, 7, 134])
def test_the_exit_code_is_told_to_the_claimer(host: Host, code: int) -> None:
    host.warm()
    found = host.claim()
    assert found is not None
    found.worker.send(go(code=str(code)))
    host.until(lambda: is_over(found.worker.pidfd))
    assert host.meanwhile(found.worker.reap) == code


def test_a_claimer_can_kill_its_worker(host: Host) -> None:
    host.warm()
    found = host.claim()
    assert found is not None
    found.worker.kill()
    assert host.meanwhile(found.worker.reap) == -signal.SIGKILL


def test_a_claimer_whose_keeper_is_gone_learns_no_exit_code_but_waits_no_longer(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.warm()
    found = host.claim()
    assert found is not None
    monkeypatch.setattr(claim_module, "CLAIM_TIMEOUT_S", 0.05)
    found.worker.kill()
    assert found.worker.reap() == UNKNOWN_EXIT  # the keeper's loop does not run meanwhile
    host.until(lambda: not is_child(found.worker.pid))


def is_child(pid: int) -> bool:
    """Tell whether a process is this one's child, ended or not."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def test_a_worker_whose_claimer_is_gone_is_killed_and_reaped(host: Host) -> None:
    pid = host.warm()
    pidfd = os.pidfd_open(pid)
    command = [PYTHON, "-c", CLAIMER, str(host.meeting.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as claimer:
        host.until(lambda: claimer.poll() is not None)
        assert claimer.stdout is not None
        assert claimer.stdout.read() == f"{pid}\n"
    host.until(lambda: is_over(pidfd))
    host.until(lambda: not is_child(pid))
    os.close(pidfd)


def test_a_handed_over_worker_outlives_the_pool(host: Host) -> None:
    host.warm()
    found = host.claim()
    assert found is not None
    host.warm()
    host.keeper.take()
    assert not is_over(found.worker.pidfd)
    host.started[1].kill()
    host.started[1].reap()
    found.worker.kill()
    host.meanwhile(found.worker.reap)


def test_the_keeper_takes_its_own_without_asking(host: Host) -> None:
    pid = host.warm()
    worker = host.keeper.take()
    assert worker is not None
    assert (worker.pid, worker.source) == (pid, "standby")
    assert host.keeper.take() is None
    worker.kill()
    assert worker.reap() == -signal.SIGKILL


def test_a_standby_is_given_to_one_claimer_alone(host: Host) -> None:
    host.warm()
    first = host.claim()
    assert first is not None
    assert host.claim() is None
    first.worker.kill()
    host.meanwhile(first.worker.reap)


def test_a_standby_that_is_still_warming_is_given_to_nobody(host: Host) -> None:
    host.keeper.tend()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(str(host.meeting.socket))
        connection.send(b"claim")
        host.keeper._accept()  # before the loop has read a word of the standby's
        assert connection.recv(64) == b""


def test_who_does_not_say_what_it_wants_gets_nothing(host: Host) -> None:
    host.warm()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(DEADLINE_S)
        connection.connect(str(host.meeting.socket))
        connection.send(b"please")
        assert host.meanwhile(lambda: connection.recv(64)) == b""
    assert host.keeper.take() is not None
    host.started[0].kill()
    host.started[0].reap()


def test_a_standby_whose_code_has_changed_is_dropped_and_replaced(host: Host, tmp_path: Path) -> None:
    source = tmp_path / "model.py"
    source.write_text("x = 1")
    host.config["sources"] = {str(source): source.stat().st_mtime_ns}
    stale = host.warm()
    os.utime(source, ns=(0, 1))
    assert host.claim() is None
    assert host.all(StandbyLost) == [StandbyLost(stale, "its code has changed (exit code -9)")]
    host.config["sources"] = {str(source): 1}
    fresh = host.warm()  # at once: nothing is wrong with it
    found = host.claim()
    assert found is not None
    assert found.worker.pid == fresh != stale
    found.worker.kill()
    host.meanwhile(found.worker.reap)


def test_a_standby_whose_code_is_gone_is_dropped(host: Host, tmp_path: Path) -> None:
    host.config["sources"] = {str(tmp_path / "gone.py"): 1}
    host.warm()
    assert host.keeper.take() is None
    assert len(host.all(StandbyLost)) == 1


def test_a_standby_that_dies_while_warming_is_replaced_after_a_pause_that_grows(host: Host) -> None:
    host.config["dies"] = True
    for pause_s in (BACKOFF_S, 2 * BACKOFF_S):
        before = len(host.all(StandbyLost))
        host.keeper.tend()
        host.until(lambda before=before: len(host.all(StandbyLost)) > before)
        assert host.all(StandbyLost)[-1].reason == "died while warming (exit code 3)"
        host.now += pause_s - 0.1
        host.keeper.tend()
        assert len(host.started) == before + 1
        host.now += 0.2
    host.config["dies"] = False
    host.warm()
    assert len(host.started) == 3


def test_a_claim_where_no_pool_is_finds_nothing(meeting: Meeting) -> None:
    assert claim(meeting) is None
    meeting.open()
    assert claim(meeting) is None


def test_a_claim_where_the_keeper_died_finds_nothing(meeting: Meeting) -> None:
    meeting.open()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(meeting.socket))
        server.listen()
    assert meeting.socket.exists()
    assert claim(meeting) is None


def test_a_claim_where_the_keeper_is_stuck_waits_no_longer_than_it_must(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_module, "CLAIM_TIMEOUT_S", 0.05)
    meeting.open()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(meeting.socket))
        server.listen()
        assert claim(meeting) is None


def test_an_empty_pool_says_so_at_once(host: Host) -> None:
    assert host.claim() is None


def test_closing_the_keeper_ends_the_standbys_and_frees_the_place(meeting: Meeting, host: Host) -> None:
    pid = host.warm()
    assert meeting.take_lock() is None
    host.close()
    assert not is_child(pid)
    assert not meeting.socket.exists()
    lock = meeting.take_lock()
    assert lock is not None
    os.close(lock)
