"""Where a daemon and those who ask it meet: a folder of this machine that is nobody else's.

It lies on a local file system, whatever the configuration lies on, so that to read the answer never
waits for a network: `$XDG_RUNTIME_DIR/elastic-discovery`, otherwise `/tmp/elastic-discovery-UID`, and
in it the path of the configuration. `discover_hosts.sh` finds the same place by the same rule.

    answer           when it was written, how long it may be used without the daemon; then host:slots lines
    asked            touched by whoever asks: the daemon ends when nobody does
    lock             held by the daemon, with its pid
    state.json       what the daemon remembers and explains
    decisions.jsonl  what it has decided, and why
    problem          why it cannot start
    daemon.log       what it has printed
"""

import contextlib
import fcntl
import json
import os
import signal
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discovery.hosts import Host

FOR_EVER_S = 10 * 365 * 86400


class PlaceError(Exception):
    """The folder cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of one configuration."""

    path: Path

    @classmethod
    def of(cls, config: Path | str, env: Mapping[str, str] | None = None) -> "Place":
        """Return the place of a configuration's path."""
        env = os.environ if env is None else env
        text = str(config)
        whole = text if text.startswith("/") else f"{env.get('PWD') or Path.cwd()}/{text}"
        return cls(Path(f"{_base(env)}{whole}"))

    @property
    def answer(self) -> Path:
        return self.path / "answer"

    @property
    def asked(self) -> Path:
        return self.path / "asked"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def state(self) -> Path:
        return self.path / "state.json"

    @property
    def decisions(self) -> Path:
        return self.path / "decisions.jsonl"

    @property
    def problem(self) -> Path:
        return self.path / "problem"

    @property
    def log(self) -> Path:
        return self.path / "daemon.log"

    def create(self, env: Mapping[str, str] | None = None) -> None:
        """Make it, for this user alone.

        Raises:
            PlaceError: when it is somebody else's, or open to others.
        """
        base = _base(os.environ if env is None else env)
        try:
            base.mkdir(mode=0o700, exist_ok=True)
            found = base.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise PlaceError(f"{base} must be a folder of yours with mode 0700; remove it, or set XDG_RUNTIME_DIR")
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlaceError(f"{self.path} cannot be made: {error.strerror}; set XDG_RUNTIME_DIR") from None

    def write_answer(self, hosts: Iterable[Host], wall_s: float, keep_s: float) -> None:
        """Replace the answer; `keep_s` is how long it may be used when the daemon writes no more."""
        text = "".join(f"{host.line}\n" for host in hosts)
        replace(self.answer, f"{int(wall_s)} {int(keep_s)}\n{text}")

    def read_answer(self) -> tuple[str, ...] | None:
        """Return the lines of the answer; None if there is none."""
        try:
            return tuple(self.answer.read_text(encoding="utf-8").splitlines()[1:])
        except OSError:
            return None

    def write_problem(self, text: str) -> None:
        """Say why the daemon cannot start."""
        replace(self.problem, f"{text}\n")

    def take_lock(self, mine: int) -> int | None:
        """Become the one daemon of this place; return the lock's file, None if there is one already."""
        fd = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        os.ftruncate(fd, 0)
        os.write(fd, f"{mine}\n".encode())
        return fd

    def daemon(self) -> int | None:
        """Return the pid of the daemon that runs here, if one does."""
        try:
            fd = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(ValueError):
                return int(os.pread(fd, 32, 0))
        finally:
            os.close(fd)
        return None

    def end_daemon(self, number: int = signal.SIGTERM) -> None:
        """End the daemon that runs here, if one does."""
        pid = self.daemon()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def read_state(self) -> dict[str, Any] | None:
        """Return what a daemon has left, None if there is nothing of use."""
        try:
            raw = json.loads(self.state.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return raw if isinstance(raw, dict) else None

    def clear(self) -> None:
        """Leave no answer behind."""
        for path in (self.answer, self.asked, self.state):
            path.unlink(missing_ok=True)


def replace(path: Path, text: str) -> None:
    """Write a file that readers see whole, the old one or the new one."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _base(env: Mapping[str, str]) -> Path:
    runtime = env.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK):
        return Path(runtime) / "elastic-discovery"
    return Path(f"/tmp/elastic-discovery-{os.getuid()}")  # noqa: S108 - `create` sees to it that it is this user's
