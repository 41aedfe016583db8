"""The agent's heartbeat for whoever watches the run, and rank 0's look at all slots for a straggler."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from elastic import heartbeats
from elastic.agent.hang import StepTimes
from elastic.agent.process import WorkerProcess
from elastic.events import EventLog, WorkerCaughtUp, WorkerStraggled
from elastic.heartbeats import Heartbeat
from elastic.stragglers import stragglers

STALE_S = 5.0  # what was written longer ago tells nothing about now
SUSTAINED_S = 10.0  # a machine that is busy with something else for a moment makes no straggler


class Heartbeats:
    """Keeps this slot's file up to date; in the slot of rank 0, compares all of them.

    Args:
        folder: of the run's heartbeats.
        events: the agent's log; bears its host, slot, rank and generation.
        now: seconds since 1970, by the clock of the machine.
    """

    def __init__(self, folder: Path, events: EventLog, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._events = events
        self._now = now
        self._named: dict[int, Heartbeat] = {}  # by rank, when it was named
        self._since: dict[int, float] = {}  # by rank, since when it has been too slow without a break

    def beat(
        self, agent_pid: int, worker: WorkerProcess | None, pace: StepTimes, clock: float, pool: tuple[int, int]
    ) -> None:
        """Write this slot's heartbeat.

        Args:
            agent_pid: of this process.
            worker: of the slot, if there is one.
            pace: of that worker.
            clock: now, on the clock of the worker's pulse.
            pool: standbys ready and warming, if this agent keeps them.
        """
        e = self._events
        ready, warming = pool
        found = Heartbeat(
            time=self._now(),
            host=e.host,
            slot=e.slot,
            agent_pid=agent_pid,
            rank=e.rank,
            generation=e.generation,
            standbys=ready,
            warming=warming,
        )
        if worker is not None:
            pulse = worker.pulse.read()
            found = replace(
                found,
                worker_pid=worker.pid,
                phase=pulse.phase.name.lower(),
                since_s=round(max(0.0, clock - pulse.since), 3),
                silent_s=round(max(0.0, clock - pulse.heartbeat), 3),
                step=pulse.step,
                step_s=round(pace.median_s, 6),
                own_s=round(pulse.own_s, 6),
            )
        heartbeats.write(self._folder, found)
        if e.rank == 0 and worker is not None:
            self._compare(heartbeats.read(self._folder), clock)

    def end(self) -> None:
        """Remove this slot's file."""
        heartbeats.remove(heartbeats.path_of(self._folder, self._events.host, self._events.slot))

    def _compare(self, beats: Sequence[Heartbeat], clock: float) -> None:
        """Record who holds the others up and has for a while, and who does no longer."""
        events = self._events
        here = {
            b.rank: b
            for b in beats
            if b.generation == events.generation and b.rank >= 0 and self._now() - b.time < STALE_S
        }
        slow = {s.rank: s for s in stragglers({b.rank: b.own_s for b in here.values()}, self._named)}
        self._since = {rank: self._since.get(rank, clock) for rank in slow}
        for rank, since in self._since.items():
            if rank not in self._named and clock - since >= SUSTAINED_S:
                b, s = here[rank], slow[rank]
                self._named[rank] = b
                events.emit(WorkerStraggled(b.host, b.slot, b.rank, s.own_s, s.peers_s))
        for rank in list(self._named):
            b = self._named[rank]
            now = here.get(rank)
            if now is None or (now.worker_pid, now.generation) != (b.worker_pid, b.generation):
                del self._named[rank]  # gone, and with it the matter
            elif rank not in slow:
                del self._named[rank]
                events.emit(WorkerCaughtUp(b.host, b.slot, b.rank, now.own_s))
