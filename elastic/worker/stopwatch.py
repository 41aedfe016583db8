"""Where the seconds of an entry into a world go, phase by phase."""

import time


class Stopwatch:
    """Laps since a start; `lap` closes the phase that ran until now."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._laps: dict[str, float] = {}

    def start(self) -> None:
        """Forget the laps; the first phase begins now."""
        self._last = time.monotonic()
        self._laps = {}

    def lap(self, phase: str) -> float:
        """Give the time since the last lap to `phase`; return it, in seconds."""
        now = time.monotonic()
        took, self._last = now - self._last, now
        self._laps[phase] = self._laps.get(phase, 0.0) + took
        return took

    def laps(self) -> dict[str, float]:
        """Return seconds by phase, in order."""
        return {phase: round(took, 6) for phase, took in self._laps.items()}
