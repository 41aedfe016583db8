"""The worker process as `fit` finds it: its job, its agent, where facts go."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from elastic.channel import Channel, Drain, Entered, Go, HostsAnnounced, Message, Phase, Prepare, Pulse, Ready
from elastic.config import Config
from elastic.errors import ExitCode
from elastic.events import Event, EventLog
from elastic.rundir import RunDir
from elastic.worker import process
from elastic.worker.next_world import NextWorld

HEARTBEAT_PERIOD_S = 0.5


@dataclass
class Context:
    """One a process. Without an agent (a script run by hand) it trains alone and keeps no run directory."""

    config: Config
    run_dir: RunDir | None = None
    channel: Channel | None = None
    pulse: Pulse = field(default_factory=Pulse.create)
    standby: bool = False
    level: str = "off"
    quiet: bool = False
    began: float = field(default_factory=time.monotonic)
    draining: str | None = None
    go: Go | None = None
    goal_reached: bool = False  # an elastic call has returned: what follows in the script runs here alone
    callbacks: tuple[Any, ...] = ()  # besides the user's
    next_world: NextWorld = field(default_factory=NextWorld)
    in_collective: Callable[[], bool] = lambda: False
    _events: EventLog | None = None

    def emit(self, event: Event) -> None:
        """Record a fact."""
        if self._events is not None:
            self._events.emit(event)

    def tell(self, message: Message) -> None:
        """Send the agent a message, if there is an agent."""
        if self.channel is not None:
            self.channel.send(message)

    def entered(self, rank: int, size: int, generation: int) -> None:
        """Say that this worker is part of a world; facts bear its rank and generation from here on."""
        if self._events is not None:
            self._events.rank, self._events.generation = rank, generation
        self.tell(Entered(rank, size, generation))

    def wait_for_slot(self) -> Go | None:
        """Tell the agent that this process is ready, and wait to be given a slot.

        Returns:
            The slot, or None when there is no agent. Ends the process when the agent is gone.
        """
        if self.channel is None or self.run_dir is None or self.go is not None:
            return self.go
        self.pulse.enter(Phase.WAITING)
        took = time.monotonic() - self.began
        self.channel.send(Ready(psutil.Process().memory_info().rss, took, process.user_sources()))
        go = self.channel.expect(Go)
        if go is None:
            os._exit(0)
        self.pulse.enter(Phase.STARTING)
        process.belong_to(go.agent_pid)
        self.go = go
        self._events = EventLog(self.run_dir.events, host=go.host, slot=go.slot)
        self._events.generation = go.generation
        self.next_world = NextWorld(self.tell)
        threading.Thread(target=self._listen, args=(self.channel,), name="agent", daemon=True).start()
        return go

    def _listen(self, channel: Channel) -> None:
        while True:
            messages = channel.receive()
            if messages is None:
                os._exit(ExitCode.TERMINATED)  # the agent is gone, and with it who would look after this process
            for message in messages:
                if isinstance(message, Drain):
                    self.draining = message.reason
                elif isinstance(message, HostsAnnounced):
                    pass_on(message)
                else:
                    self.next_world.hear(message)

    def drain(self) -> None:
        """Leave after the step in progress; at once where there is none."""
        if self.pulse.read().phase in (Phase.STARTING, Phase.WAITING, Phase.ENTERING):
            os._exit(ExitCode.TERMINATED)
        self.draining = "SIGTERM"

    def start_heartbeat(self) -> None:
        """Let the pulse show that this process runs Python."""

        def beat() -> None:
            while True:
                self.pulse.heartbeat()
                self.pulse.collective(self.in_collective())
                time.sleep(HEARTBEAT_PERIOD_S)

        threading.Thread(target=beat, name="heartbeat", daemon=True).start()


def pass_on(announced: HostsAnnounced) -> None:
    """Let the elastic state of this process hear what the launcher would have told it."""
    from horovod.common.elastic import notification_manager
    from horovod.runner.elastic.worker import HostUpdateResult

    result = HostUpdateResult.removed if announced.removed else HostUpdateResult.added
    notification_manager.handle_hosts_updated(int(time.time()), result)


def from_prepare(message: Prepare, channel: Channel, pulse: Pulse) -> Context:
    """Return the context of a process that an agent started."""
    return Context(
        config=Config.model_validate(message.config),
        run_dir=RunDir(Path(message.run_dir)),
        channel=channel,
        pulse=pulse,
        standby=message.standby,
        level=message.level,
        quiet=message.quiet,
    )


_current: Context | None = None


def set_current(context: Context) -> None:
    """Make `context` this process's."""
    global _current
    _current = context


def current() -> Context:
    """Return this process's context; one without an agent if none was set."""
    global _current
    if _current is None:
        _current = Context(config=Config())
    return _current
