"""One thread that waits for files and for time, and calls whoever asked."""

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any


class Loop:
    """Calls actions when their file is readable or their time has come; ends when told a result."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, float, Callable[[], None]]] = []
        self._result: int | None = None

    def watch(self, file: Any, action: Callable[[], None]) -> None:
        """Call `action` whenever `file` is readable."""
        self._selector.register(file, selectors.EVENT_READ, action)

    def unwatch(self, file: Any) -> None:
        """Forget a file; one that is not watched is no error."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(file)

    def every(self, period_s: float, action: Callable[[], None]) -> None:
        """Call `action` about every `period_s`."""
        self._timers.append((self.now() + period_s, period_s, action))

    def end(self, result: int) -> None:
        """Let `run` return `result`; the first call counts."""
        if self._result is None:
            self._result = result

    def run(self) -> int:
        """Wait and call until `end`."""
        while self._result is None:
            due = min((t for t, _, _ in self._timers), default=self.now() + 1.0)
            self.step(max(0.0, due - self.now()))
        self._selector.close()
        return self._result

    def step(self, wait_s: float) -> None:
        """Wait for a file, `wait_s` at most, then call whoever's file is readable and whose time has come."""
        for key, _ in self._selector.select(wait_s):
            if self._result is None and self._selector.get_map().get(key.fd) is key:  # not unwatched meanwhile
                key.data()
        self._fire()

    def _fire(self) -> None:
        now = self.now()
        for i, (due, period, action) in enumerate(self._timers):
            if due <= now and self._result is None:
                self._timers[i] = (now + period, period, action)
                action()

    def on_signals(self, numbers: Sequence[int], action: Callable[[int], None]) -> None:
        """Call `action(number)` in this loop when one of the signals comes."""
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(write)
        for number in numbers:
            signal.signal(number, lambda *_: None)

        def drain() -> None:
            for number in os.read(read, 64):
                if number in numbers:
                    action(number)

        self.watch(read, drain)
