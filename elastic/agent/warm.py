"""`elastic warm`: a host's pool of standbys before the job has a slot there.

A host that joins a job would first import TensorFlow and build the model. Whoever brings up hosts runs
this on each of them: it keeps the pool in place of an agent, and the first agent finds a worker ready.

Theory of operation. A host's agents meet at a place that is named after the launcher's rendezvous.
Agents leave its address in the run directory, and whatever else is needed to prepare a worker; this
process looks there each second. It keeps the pool while that launcher can be reached, then waits
for another one, and ends when it is told to or the run has reached its goal.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from elastic.agent.claim import count
from elastic.agent.keeper import Keeper
from elastic.agent.loop import Loop
from elastic.agent.meeting import Meeting, meeting_of
from elastic.agent.process import spawn
from elastic.agent.settings import Settings
from elastic.agent.slot import without_launcher
from elastic.agent.word import Launched, read_word
from elastic.channel import Prepare
from elastic.errors import HostError
from elastic.events import EventLog
from elastic.rundir import RunDir

LOOK_S = 1.0
REACH_S = 1.0
GONE_AFTER = 5  # looks at a launcher that cannot be reached


class Warmth:
    """Keeps a host's pool while a launcher that its agents would belong to can be reached.

    Args:
        run_dir: of the run.
        host: as the launcher calls this host.
        config: the job's, in its plain form.
    """

    def __init__(self, loop: Loop, run_dir: RunDir, host: str, config: Mapping[str, Any]) -> None:
        self._loop = loop
        self._run_dir = run_dir
        self._host = host
        self._config = config
        self._settings = Settings.read(config)
        self._events = EventLog(run_dir.events, host=host)
        self._launched: Launched | None = None
        self._keeper: Keeper | None = None
        self._out_of_reach = 0

    def look(self) -> None:
        """See which launcher there is, and keep the pool for it."""
        launched = read_word(self._run_dir)
        if launched is None:
            return
        if launched != self._launched:
            self.close()
            self._launched, self._out_of_reach = launched, 0
        if _reaches(launched):
            self._out_of_reach = 0
        else:
            self._out_of_reach += 1
            if self._out_of_reach == GONE_AFTER:
                self.close()
            return
        if self._keeper is None:
            self._open(launched)
        if self._keeper is not None:
            self._keeper.tend()

    def close(self) -> None:
        """End the standbys that nobody has claimed."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    def _open(self, launched: Launched) -> None:
        meeting = self._meeting(launched)
        lock = meeting.take_lock() if meeting is not None else None
        if meeting is None or lock is None:
            return  # an agent of this host keeps the pool
        settings, quiet = self._settings, launched.launcher == "elastic run"
        prepare = Prepare(launched.job, dict(self._config), str(self._run_dir.path), True, settings.level, quiet)
        env = without_launcher(os.environ)
        env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        log = self._run_dir.logs / f"standby-{self._host}.log"
        silent_s = settings.limits.heartbeat_s
        self._keeper = Keeper(
            self._loop, meeting, lock, self._events, prepare, env, settings.standbys, log, silent_s, spawn
        )
        self._keeper.open()
        self._keeper.training()  # nobody trains here whom it could disturb

    def _meeting(self, launched: Launched) -> Meeting | None:
        meeting = meeting_of(f"{launched.address}:{launched.port}", self._host)
        try:
            meeting.open()
        except (HostError, OSError) as error:
            print(f"elastic: no warm standbys on this host: {error}", file=sys.stderr, flush=True)
            return None
        return meeting


def warm(run_dir: RunDir, host: str, config: Mapping[str, Any]) -> int:
    """Keep the pool of this host until told to stop, or until the run has reached its goal."""
    loop = Loop()
    warmth = Warmth(loop, run_dir, host, config)

    def look() -> None:
        if _is_over(run_dir):
            loop.end(0)
        else:
            warmth.look()

    loop.on_signals((signal.SIGTERM, signal.SIGINT), lambda _: loop.end(0))
    loop.every(LOOK_S, look)
    try:
        return loop.run()
    finally:
        warmth.close()


def standbys(run_dir: RunDir, host: str) -> int:
    """Return how many standbys are ready on this host for the run's launcher."""
    launched = read_word(run_dir)
    return count(meeting_of(f"{launched.address}:{launched.port}", host)) if launched is not None else 0


def _is_over(run_dir: RunDir) -> bool:
    try:
        return bool(json.loads(run_dir.summary.read_bytes())["status"] == "finished")
    except (OSError, ValueError, KeyError):
        return False


def _reaches(launched: Launched) -> bool:
    try:
        with socket.create_connection((launched.address, launched.port), timeout=REACH_S):
            return True
    except OSError:
        return False
