"""How each kind of fault is injected, what it needs, and how it is undone."""

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from elastic.chaos import cgroup, disk, network
from elastic.chaos.disk import Disk
from elastic.chaos.hosts import GARBAGE, HostsFile, with_fewer, with_more
from elastic.chaos.kinds import AMOUNTS, DISK, NETWORK, SIGNALS, Kind
from elastic.chaos.net.hosts import Net
from elastic.chaos.plan import Planned
from elastic.chaos.scene import Process
from elastic.deeds import Deed, ask
from elastic.rundir import RunDir

FLAP_S = 1.5  # longer than Horovod takes to ask for hosts


class Skip(Exception):
    """The fault cannot be injected here; the message says why."""


class NotYet(Exception):
    """The fault cannot be injected at this moment."""


@dataclass(frozen=True)
class Ground:
    """What faults act on.

    Attributes:
        folder: where the job's workers listen for deeds.
        most_workers: that the job takes.
        disk: the small one, where the plan needs it.
        net: the job's hosts, where the plan has some of their own.
    """

    run_dir: RunDir
    folder: Path
    hosts: HostsFile
    most_workers: int
    disk: Disk | None
    net: Net | None = None


def _nothing() -> None:
    pass


def _no_tick(now: float) -> None:
    pass


@dataclass(frozen=True)
class Ongoing:
    """A fault that has been injected.

    Attributes:
        undo: ends it.
        tick: what it does meanwhile; hears the time, monotonic seconds.
        what: it was done to, where that is no process.
    """

    undo: Callable[[], None] = _nothing
    tick: Callable[[float], None] = _no_tick
    what: str = ""


def obstacle(kind: Kind, hosts: int | None) -> str | None:
    """Return what this machine, or a plan with so many hosts of their own, lacks for a kind of fault; or None."""
    if kind in NETWORK:
        return network.obstacle(hosts)
    if kind in DISK:
        return disk.obstacle()
    if kind is Kind.OOM:
        return cgroup.obstacle()
    return None


def inject(fault: Planned, victims: Sequence[Process], ground: Ground) -> Ongoing:
    """Inject a fault now.

    Raises:
        Skip: when it cannot be injected in this job.
        NotYet: when it must be tried again.
    """
    if fault.kind in SIGNALS:
        return _send(_SIGNALS[fault.kind], victims)
    if fault.kind in NETWORK:
        return _break_network(fault, victims, ground)
    if fault.kind in _DEEDS:
        return _ask(fault, _DEEDS[fault.kind], victims, ground.folder)
    if fault.kind is Kind.CHECKPOINT_FLIPPED:
        return _flip_bit(ground, fault.draw)
    return _ON_GROUND[fault.kind](ground)


_SIGNALS = {Kind.KILL: signal.SIGKILL, Kind.TERM: signal.SIGTERM, Kind.STOP: signal.SIGSTOP}

_DEEDS = {
    Kind.RAISE: Deed.RAISE,
    Kind.SEGFAULT: Deed.SEGFAULT,
    Kind.ABORT: Deed.ABORT,
    Kind.EXIT: Deed.EXIT,
    Kind.HOLD_GIL: Deed.HOLD_GIL,
    Kind.SPIN: Deed.SPIN,
    Kind.MEMORY: Deed.MEMORY,
    Kind.OOM: Deed.HOG,
    Kind.FDS: Deed.FDS,
    Kind.STDOUT_CHILD: Deed.STDOUT_CHILD,
    Kind.CLOCK: Deed.CLOCK,
}


def _send(number: signal.Signals, victims: Sequence[Process]) -> Ongoing:
    """Send a signal; a stopped process goes on when that is undone. A pidfd never means another process."""
    fds = []
    for victim in victims:
        try:
            fds.append(os.pidfd_open(victim.pid))
        except ProcessLookupError:
            continue
    if not fds:
        raise NotYet
    for fd in fds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fd, number)

    def undo() -> None:
        for fd in fds:
            with contextlib.suppress(ProcessLookupError):
                if number is signal.SIGSTOP:
                    signal.pidfd_send_signal(fd, signal.SIGCONT)
            os.close(fd)

    return Ongoing(undo)


def _ask(fault: Planned, deed: Deed, victims: Sequence[Process], folder: Path) -> Ongoing:
    undo = _nothing
    if deed is Deed.HOG:
        undo = cgroup.confine([v.pid for v in victims], int(fault.amount) << 20)
    amount = fault.amount if fault.kind in AMOUNTS else fault.for_s or 0.0
    heard = [ask(folder, v.pid, deed, amount) for v in victims]
    if not any(heard):
        undo()
        raise NotYet
    if deed is Deed.STDOUT_CHILD:
        return Ongoing(lambda: _end_children([str(folder / str(v.pid)) for v in victims]))
    return Ongoing(undo)


def _break_network(fault: Planned, victims: Sequence[Process], ground: Ground) -> Ongoing:
    assert ground.net is not None
    net, hosts = ground.net, sorted({v.slot[0] for v in victims if v.slot is not None})
    network.spoil(fault, hosts, net)
    return Ongoing(lambda: network.restore(fault, hosts, net))


def _end_children(marks: Sequence[str]) -> None:
    """End the processes that dead workers have left; each bears its worker's pipe on its command line."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if set(marks) & set(process.cmdline()):
                process.kill()


def _remove_host(ground: Ground) -> Ongoing:
    before = ground.hosts.lines
    fewer = with_fewer(before)
    if fewer is None:
        raise Skip("the job has a single slot, none can be taken away")
    ground.hosts.put(fewer)
    return Ongoing(lambda: ground.hosts.put(before))


def _add_host(ground: Ground) -> Ongoing:
    before = ground.hosts.lines
    more = with_more(before, ground.most_workers)
    if more is None:
        raise Skip(f"all {ground.most_workers} workers (workers.max) are there, none can be added")
    ground.hosts.put(more)
    return Ongoing(lambda: ground.hosts.put(before))


def _flap(ground: Ground) -> Ongoing:
    before = ground.hosts.lines
    fewer = with_fewer(before)
    if fewer is None:
        raise Skip("the job has a single slot, none can be taken away")
    turns = [0.0]

    def tick(now: float) -> None:
        if now - turns[-1] >= FLAP_S:
            turns.append(now)
            ground.hosts.put(before if len(turns) % 2 else fewer)

    return Ongoing(lambda: ground.hosts.put(before), tick)


def _slow_discovery(ground: Ground) -> Ongoing:
    ground.hosts.block()
    return Ongoing(ground.hosts.unblock)


def _failing_discovery(ground: Ground) -> Ongoing:
    ground.hosts.remove()
    return Ongoing(ground.hosts.restore)


def _empty_discovery(ground: Ground) -> Ongoing:
    ground.hosts.write(b"")
    return Ongoing(ground.hosts.restore)


def _garbage_from_discovery(ground: Ground) -> Ongoing:
    ground.hosts.write(GARBAGE)
    return Ongoing(ground.hosts.restore)


def _fill_disk(ground: Ground) -> Ongoing:
    assert ground.disk is not None
    ground.disk.fill()
    return Ongoing(ground.disk.free)


def _make_read_only(ground: Ground) -> Ongoing:
    small = ground.disk
    assert small is not None
    try:
        small.set_read_only(True)
    except OSError:
        raise NotYet from None  # a checkpoint is being written
    return Ongoing(lambda: small.set_read_only(False))


def _tear_checkpoint(ground: Ground) -> Ongoing:
    victim = _newest_checkpoint(ground.run_dir)
    kept = ground.folder / "torn"
    shutil.copyfile(victim, kept)
    os.truncate(victim, victim.stat().st_size // 2)

    def undo() -> None:
        if victim.exists():
            shutil.copyfile(kept, victim)
        kept.unlink()

    return Ongoing(undo, what=victim.parent.name)


def _flip_bit(ground: Ground, draw: float) -> Ongoing:
    victim = _newest_checkpoint(ground.run_dir)
    at = int(draw * victim.stat().st_size)

    def flip() -> None:
        with contextlib.suppress(FileNotFoundError), victim.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << int(draw * 8)]))

    flip()
    return Ongoing(flip, what=victim.parent.name)


def _newest_checkpoint(run_dir: RunDir) -> Path:
    found = sorted(run_dir.checkpoints.glob("step-*/variables.bin"))
    if not found:
        raise NotYet
    return found[-1]


_ON_GROUND: dict[Kind, Callable[[Ground], Ongoing]] = {
    Kind.HOST_REMOVED: _remove_host,
    Kind.HOST_ADDED: _add_host,
    Kind.HOST_FLAPPING: _flap,
    Kind.DISCOVERY_SLOW: _slow_discovery,
    Kind.DISCOVERY_FAILING: _failing_discovery,
    Kind.DISCOVERY_EMPTY: _empty_discovery,
    Kind.DISCOVERY_GARBAGE: _garbage_from_discovery,
    Kind.DISK_FULL: _fill_disk,
    Kind.DISK_READ_ONLY: _make_read_only,
    Kind.CHECKPOINT_TORN: _tear_checkpoint,
}
