"""A scripted world around one real agent: its clock, its workers, its launcher.

Everything runs in one thread, on the agent's own loop. Whenever no file is readable, the clock
jumps to whatever is due next, so a story of minutes is told in milliseconds, the same each time.
A worker is an object that holds the other ends of what a real one holds: the channel, the pulse,
the pipes and something that becomes readable at its death. What it does is its role.
"""

import contextlib
import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pytest

from elastic.agent.agent import Agent
from elastic.agent.loop import Loop
from elastic.agent.meeting import Meeting
from elastic.agent.policy import Budget, Cause
from elastic.agent.process import WorkerProcess
from elastic.agent.settings import Settings
from elastic.agent.slot import Assignment, Slot
from elastic.channel import (
    Channel,
    Drain,
    Entered,
    Entering,
    Failed,
    Finished,
    Go,
    Left,
    Message,
    Phase,
    Prepare,
    Pulse,
    Ready,
)
from elastic.config import Config
from elastic.events import Event, Record, read
from elastic.rundir import RunDir

BEGAN = 1000.0
TOO_LONG_S = 10_000.0
BEAT_S = 0.5
WARM_S = 2.0
STILL_RUNNING = -1
NO_PID = 1 << 30  # beyond what a kernel gives to processes


class Clock:
    """The world's time; stands for the `time` module in the pulse."""

    def __init__(self) -> None:
        self.now = BEGAN

    def monotonic_ns(self) -> int:
        return round(self.now * 1e9)


class ScriptedLoop(Loop):
    """The agent's loop, in a world whose clock jumps when nobody has anything to say."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(lambda: clock.now)
        self._clock = clock
        self._calls = 0
        self._on_signal: Callable[[int], None] | None = None

    def watch(self, file: Any, action: Callable[[], None]) -> None:
        def counted() -> None:
            self._calls += 1
            action()

        super().watch(file, counted)

    def step(self, wait_s: float) -> None:
        calls = self._calls
        super().step(0.0)
        if self._calls == calls:
            self._clock.now += wait_s
            assert self._clock.now < BEGAN + TOO_LONG_S, "the story never ends"

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Call `action` once, `time` seconds after the world began."""
        self._timers.append((BEGAN + time, math.inf, action))

    def on_signals(self, numbers: Sequence[int], action: Callable[[int], None]) -> None:
        self._on_signal = action

    def deliver(self, number: int) -> None:
        """Let the agent get a signal."""
        assert self._on_signal is not None
        self._on_signal(number)


@dataclass
class Launcher:
    """Stands for `Rendezvous`: what the agent knows of the launcher.

    Attributes:
        asking: the driver has counted the slot for a round that it has not made.
        over: the others have reached the goal.
        retired: whether the slot ended with the goal; None while it is spoken for.
    """

    launched_env_used: bool = False
    removed: bool = False
    asking: bool = False
    over: bool = False
    retired: bool | None = None
    env: Mapping[str, str] = field(default_factory=lambda: {"HOROVOD_GLOO_RENDEZVOUS_PORT": "4242"})
    heard: list[str] = field(default_factory=list)

    def enter(self) -> str:
        if self.over and not self.launched_env_used:
            return "over"
        return "rejoin" if self.launched_env_used else "launched"

    def open_round(self) -> None:
        self.heard.append("open_round")

    def entering(self) -> None:
        self.heard.append("entering")

    def entered(self) -> None:
        self.heard.append("entered")

    def ended(self) -> None:
        self.heard.append("ended")

    def is_over(self) -> bool:
        return self.over

    def retire(self, *, goal: bool) -> bool:
        if goal and self.asking:
            return False
        self.retired = goal
        return True


class ScriptedAhead:
    """Stands for `Ahead`: notes what it is told, and tells what a test wants."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.orders: list[Any] = []
        self.comes_to_a_world_that_trains = False
        self.asks = False
        self._news: list[Any] = []

    def tell(self, news: Any) -> None:
        """Let the agent hear something."""
        self._news.append(news)
        os.eventfd_write(self.fd, 1)

    def ask(self, generation: int, attempt: int) -> None:
        self.orders.append((generation, attempt))

    def watch(self) -> None:
        self.orders.append("watch")

    def rest(self) -> None:
        self.orders.append("rest")

    def leave(self) -> None:
        self.orders.append("leave")

    def is_awaited(self) -> bool:
        return self.comes_to_a_world_that_trains

    def news(self) -> list[Any]:
        os.eventfd_read(self.fd)
        news, self._news = self._news, []
        return news


class ScriptedProcess(WorkerProcess):
    """The agent's hold on a scripted worker; signals reach the worker's script."""

    actor: "Worker"

    def signal(self, number: int) -> None:
        self.actor.get_signal(number)

    def kill(self) -> None:
        self.actor.get_signal(signal.SIGKILL)

    def reap(self) -> int:
        code = self.exit_code()
        self.release()
        return code

    def is_stopped(self) -> bool:
        return self.actor.stopped


class Worker:
    """What happens on the other side of a `WorkerProcess`."""

    def __init__(self, world: "World", env: Mapping[str, str]) -> None:
        self.world = world
        self.env = dict(env)
        self.started = world.time
        self.ended: float | None = None
        self.code: int | None = None
        self.heard: list[Message] = []
        self.signals: list[int] = []
        self.stopped = False
        self.silent = False
        self.on_drain: Callable[[Worker], None] = leaves
        self._phase_step = 0
        self._channel, theirs = Channel.pair()
        self._mine = Channel(theirs)
        theirs.setblocking(False)
        pulse = Pulse.create()
        self.pulse = Pulse(os.dup(pulse.fd))
        (out, self._out), (err, self._err) = os.pipe(), os.pipe()
        for fd in (out, err):
            os.set_blocking(fd, False)
        self._death = os.eventfd(0)
        pid = NO_PID + len(world.workers)
        self.process = ScriptedProcess(pid, self._channel, pulse, os.dup(self._death), (out, err), self._exit_code)
        self.process.actor = self
        world.loop.watch(theirs, self._listen)
        world.loop.every(BEAT_S, self._beat)

    @property
    def alive(self) -> bool:
        return self.code is None

    @property
    def go(self) -> Go | None:
        return next((m for m in self.heard if isinstance(m, Go)), None)

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something later, if still alive."""
        self.world.loop.at(self.world.time + delay_s, lambda: action() if self.alive else None)

    def say(self, message: Message) -> None:
        self._mine.send(message)

    def print(self, text: str, *, err: bool = False) -> None:
        os.write(self._err if err else self._out, text.encode())

    def enter(self, after_s: float = 0.5) -> None:
        """Join a world, which takes a while: show up at the rendezvous, then meet the others."""
        self.pulse.enter(Phase.ENTERING)
        self.say(Entering())

        def entered() -> None:
            self.show_up()
            self.say(Entered(rank=1, size=2, generation=self.world.generation))
            self.pulse.enter(Phase.USER)
            self._phase_step = 1

        self.after(after_s, entered)

    def show_up(self) -> None:
        """Put this slot's address where the others find it."""
        self.world.launcher.launched_env_used = True

    def hang(self, phase: Phase) -> None:
        """Run Python, and do no step any more."""
        self._phase_step = 0
        self.pulse.enter(phase)

    def die(self, code: int) -> None:
        """End, once."""
        if not self.alive:
            return
        self.code, self.ended = code, self.world.time
        self.world.loop.unwatch(self._mine.sock)
        self._mine.close()
        self.pulse.close()
        os.close(self._out)
        os.close(self._err)
        os.eventfd_write(self._death, 1)

    def be_seen_dead(self) -> None:
        """Let the agent notice the death before what is said from here on to `die`."""
        os.eventfd_write(self._death, 1)

    def get_signal(self, number: int) -> None:
        self.signals.append(number)
        if number == signal.SIGKILL:
            self.die(-signal.SIGKILL)

    def _listen(self) -> None:
        if self.stopped:
            return
        messages = self._mine.receive()
        if messages is None:
            self.world.loop.unwatch(self._mine.sock)
            return
        for message in messages:
            self.heard.append(message)
            match message:
                case Prepare():
                    self.after(WARM_S if message.standby else self.world.start_s, self._wait_for_slot)
                case Go():
                    self.pulse.enter(Phase.STARTING)
                    self.world.next_role()(self)
                case Drain():
                    self.on_drain(self)

    def _wait_for_slot(self) -> None:
        self.pulse.enter(Phase.WAITING)
        self.say(Ready(1, WARM_S))

    def _beat(self) -> None:
        if not self.alive or self.stopped or self.silent:
            return
        self.pulse.heartbeat()
        if self._phase_step:
            self.pulse.step_done(self.pulse.read().step + 1)

    def close(self) -> None:
        """Free what a worker at the end of the story still holds."""
        self.die(-signal.SIGKILL)
        if self.process.channel.sock.fileno() >= 0:
            self.process.release()
        os.close(self._death)

    def _exit_code(self) -> int:
        assert self.code is not None, "asked for the exit code of a worker that lives"
        return self.code


Role = Callable[[Worker], None]


def trains(worker: Worker) -> None:
    """Enter, and train for ever."""
    worker.enter()


def leaves(worker: Worker) -> None:
    """What a worker does when asked to drain: finish the step, say so, end."""
    worker.after(0.2, lambda: (worker.say(Left(whole_job=False)), worker.die(143)))


def ignores(worker: Worker) -> None:
    """What a worker that is busy does when asked to drain."""


def crashes(after_s: float, code: int = -signal.SIGSEGV) -> Role:
    """Train, and die without a word `after_s` after the start."""

    def role(worker: Worker) -> None:
        worker.enter()
        worker.after(after_s, lambda: worker.die(code))

    return role


def fails(after_s: float, traceback: str = "Traceback\nValueError: bad sample", *, config: bool = False) -> Role:
    """Train, and raise."""

    def role(worker: Worker) -> None:
        def fail() -> None:
            worker.say(Failed(traceback.splitlines()[-1], traceback, worker.pulse.read().step, config=config))
            worker.die(2 if config else 1)

        worker.enter()
        worker.after(after_s, fail)

    return role


def finishes(after_s: float) -> Role:
    """Train to the goal."""

    def role(worker: Worker) -> None:
        worker.enter()
        worker.after(after_s, lambda: (worker.say(Finished()), worker.die(0)))

    return role


def dies_entering(worker: Worker) -> None:
    """Be aborted by Horovod's core while the world is made."""
    worker.enter(after_s=math.inf)
    worker.after(0.3, lambda: worker.die(-signal.SIGABRT))


def dies_meeting(worker: Worker) -> None:
    """Be aborted between showing up and being in a world."""
    worker.enter(after_s=math.inf)
    worker.after(0.2, worker.show_up)
    worker.after(0.3, lambda: worker.die(-signal.SIGABRT))


def does(after_s: float, action: Callable[[Worker], None]) -> Role:
    """Train, and do something `after_s` after the start."""

    def role(worker: Worker) -> None:
        worker.enter()
        worker.after(after_s, lambda: action(worker))

    return role


class Heard:
    """What comes in on another thread: the launcher's announcements, the cloud's notice."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self._said: list[object] = []

    def start(self) -> None:
        pass

    def say(self, what: object) -> None:
        self._said.append(what)
        os.eventfd_write(self.fd, 1)

    def news(self) -> list[object]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        said, self._said = self._said, []
        return said

    def notice(self) -> object:
        return (self.news() or [None])[-1]


class World:
    """One slot and its real agent.

    `plays` says what the slot's workers do, one after the other, once they are told to go; the last
    role is everybody's from there on. `start_s` is what a cold one needs before. `run` tells the
    story and returns the agent's exit code.
    """

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.loop = ScriptedLoop(self.clock)
        self.launcher = Launcher()
        self.ahead = ScriptedAhead()
        self.announcements = Heard()
        self.preemption = Heard()
        self.start_s = 0.0
        self.run_dir = RunDir(path / "run").create()
        self.workers: list[Worker] = []
        self.generation = 1
        self.parent = 77
        self.summaries = 0
        self.meeting: Meeting | None = None
        self.settings = Settings.read(Config().model_dump(mode="json", by_alias=True))
        self.settings = replace(self.settings, standbys=0, level="off", drain_s=5.0)
        self._path = path
        self._roles: list[Role] = [trains]
        monkeypatch.setattr("elastic.channel.time", self.clock)
        monkeypatch.setattr("os.getppid", lambda: self.parent)

    @property
    def time(self) -> float:
        """Seconds since the world began."""
        return self.clock.now - BEGAN

    def plays(self, *roles: Role) -> Self:
        self._roles = list(roles)
        return self

    def budget(self, cause: Cause, limit: int, window_s: float) -> Self:
        budgets = self.settings.budgets | {cause: Budget(limit, window_s)}
        self.settings = replace(self.settings, budgets=budgets)
        return self

    def pool(self, size: int) -> Self:
        """Keep so many warm standbys."""
        self.settings = replace(self.settings, standbys=size, level="step")
        self.meeting = Meeting(self._path / "m" / "j")
        self.meeting.open()
        return self

    def at(self, time: float, action: Callable[[], None]) -> Self:
        self.loop.at(time, action)
        return self

    def signal_at(self, time: float, number: int) -> Self:
        return self.at(time, lambda: self.loop.deliver(number))

    def spawn(self, env: Mapping[str, str]) -> WorkerProcess:
        worker = Worker(self, env)
        self.workers.append(worker)
        return worker.process

    def next_role(self) -> Role:
        """Return what the worker that is told to go now will do."""
        return self._roles.pop(0) if len(self._roles) > 1 else self._roles[0]

    def run(self) -> int:
        """Tell the story to the end of the slot."""
        slot = Slot("alpha", 1, 2, "horovodrun", {"HOROVOD_RANK": "1"}, ("127.0.0.1", 1))
        assignment = Assignment(Path("/jobs/mnist.yaml"), {"epochs": 3}, self.run_dir, slot, {"LANG": "C"})
        agent = Agent(
            assignment,
            self.settings,
            self.loop,
            self.meeting,
            self.launcher,  # type: ignore[arg-type]
            self.ahead,  # type: ignore[arg-type]
            self.spawn,
            self._summarise,
            self.preemption,  # type: ignore[arg-type]
            self.announcements,  # type: ignore[arg-type]
        )
        return agent.run()

    def run_until(self, time: float) -> Self:
        """Tell the story up to a point at which the slot must still be looked after."""
        self.at(time, lambda: self.loop.end(STILL_RUNNING))
        code = self.run()
        assert code == STILL_RUNNING, f"the slot ended with {code} at {self.time:.2f} s"
        return self

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        for heard in (self.ahead, self.announcements, self.preemption):
            os.close(heard.fd)

    def _summarise(self) -> None:
        self.summaries += 1

    def facts(self, *kinds: type[Event]) -> list[Record]:
        names = {kind.__name__ for kind in kinds}
        return [r for r in read(self.run_dir.events) if not kinds or r.event in names]

    def story(self) -> list[str]:
        """Return the names of all facts in order."""
        return [r.event for r in self.facts()]

    def last(self, kind: type[Event]) -> Record:
        return self.facts(kind)[-1]

    def entries(self) -> list[str]:
        """Return how each worker was told to enter, in order."""
        return [worker.go.entry for worker in self.workers if worker.go is not None]
