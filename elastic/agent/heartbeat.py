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
        self._named: dict[tuple[str, int], tuple[int, int]] = {}

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
            self._compare(heartbeats.read(self._folder))

    def end(self) -> None:
        """Remove this slot's file."""
        heartbeats.remove(heartbeats.path_of(self._folder, self._events.host, self._events.slot))

    def _compare(self, beats: Sequence[Heartbeat]) -> None:
        """Record who has become a straggler in this world, and who is none any more."""
        here = [
            b
            for b in beats
            if b.generation == self._events.generation and b.rank >= 0 and self._now() - b.time < STALE_S
        ]
        by_rank = {b.rank: b for b in here}
        named = {b.rank for b in here if self._named.get((b.host, b.slot)) == (b.worker_pid, b.generation)}
        found = stragglers({b.rank: b.own_s for b in here}, named)
        for s in found:
            b = by_rank[s.rank]
            if s.rank not in named:
                self._named[b.host, b.slot] = (b.worker_pid, b.generation)
                self._events.emit(WorkerStraggled(b.host, b.slot, b.rank, s.own_s, s.peers_s))
        for rank in named - {s.rank for s in found}:
            b = by_rank[rank]
            del self._named[b.host, b.slot]
            self._events.emit(WorkerCaughtUp(b.host, b.slot, b.rank, b.own_s))
