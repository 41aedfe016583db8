"""What a source of hosts is: one method, a file each beside this one."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from discovery.hosts import Hosts, SourceError


class Source(Protocol):
    """Says which hosts there are."""

    @property
    def name(self) -> str:
        """What decisions call it."""

    @property
    def period_s(self) -> float:
        """How long to wait between two questions."""

    def find(self, timeout_s: float) -> Hosts:
        """Return the hosts that can be had now, in a stable order, with those that are left out.

        Args:
            timeout_s: within which it must return or raise, whatever it waits for.

        Raises:
            SourceError: when it cannot be known.
        """

    def close(self) -> None:
        """Let go of connections and threads."""


class Bounded:
    """Calls what may hang where nothing can interrupt it, such as a read from a dead network file system.

    Args:
        call: finds the hosts; called on a thread of its own, one call at a time.
        what: that it asks, for messages.
    """

    def __init__(self, call: Callable[[], Hosts], what: str) -> None:
        self._call = call
        self._what = what
        self._thread: threading.Thread | None = None
        self._found: Hosts | Exception = SourceError(f"{what} has not answered yet")

    def find(self, timeout_s: float) -> Hosts:
        """Return what the call returns, or raise what it raises; a call that still hangs is waited for again."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name=self._what, daemon=True)
            self._thread.start()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise SourceError(f"{self._what} gave no answer within {round(timeout_s, 1):g} s")
        if isinstance(self._found, Exception):
            raise self._found
        return self._found

    def _run(self) -> None:
        try:
            self._found = self._call()
        except Exception as error:  # noqa: BLE001 - raised again where it was asked for
            self._found = error


def output_of(
    line: Sequence[str],
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    text: bytes = b"",
    folder: Path | None = None,
) -> str:
    """Return what a program prints; it and its children are killed when it takes too long.

    Args:
        line: the program and its arguments.
        timeout_s: what it may take.
        env: its environment; by default this process's.
        text: what it reads from standard input.
        folder: where it runs; by default where this process does.

    Raises:
        SourceError: when it cannot be started, fails or takes too long.
    """
    try:
        process = subprocess.Popen(
            line,
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise SourceError(f"{line[0]} cannot be started: {error.strerror}") from None
    with process:
        try:
            out, err = process.communicate(text, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _end_all(process.pid)
            raise SourceError(f"{line[0]} gave no answer within {round(timeout_s, 1):g} s") from None
    if process.returncode != 0:
        words = err.decode(errors="replace").strip().splitlines()
        said = f": {words[-1][:200]}" if words else ""
        raise SourceError(f"{line[0]} ended with code {process.returncode}{said}")
    return out.decode(errors="replace")


def _end_all(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
