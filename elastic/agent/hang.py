"""Is a worker that is alive standing still? A pure verdict on its pulse."""

import statistics
from collections import deque
from dataclasses import dataclass, field

from elastic.channel import Beat, Phase

SLOW_STEPS = 10  # a step of more than so many medians is no step any more
RECENT = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds; see `config.Hang`."""

    heartbeat_s: float
    progress_s: float
    start_s: float
    compile_s: float
    validation_s: float
    saving_s: float


@dataclass(frozen=True, slots=True)
class Hung:
    """A worker to replace, and why; `frozen` if it runs no Python, so that its stacks cannot be asked for."""

    reason: str
    frozen: bool


def verdict(beat: Beat, now: float, limits: Limits, median_step_s: float, *, stopped: bool = False) -> Hung | None:
    """Judge a worker by its pulse.

    A worker that waits for its peers in a collective or at the rendezvous is never at fault.

    Args:
        beat: what the pulse says; times on the same clock as `now`.
        now: seconds.
        limits: from the configuration.
        median_step_s: of this worker's recent steps; 0 while unknown.
        stopped: whether the kernel has stopped it: then it is not silent because it imports something.
    """
    silent = now - beat.heartbeat
    starting = beat.phase in (Phase.STARTING, Phase.WAITING) and not stopped
    if silent > (limits.start_s if starting else limits.heartbeat_s):
        return Hung(f"no heartbeat for {silent:.1f} s while {beat.phase.name.lower()}", frozen=True)
    if beat.phase in (Phase.STEPPING, Phase.COMPILING) and beat.in_collective:
        return None
    limit = _limit(beat.phase, limits, median_step_s)
    if limit is not None and now - beat.since > limit:
        return Hung(f"no progress for {now - beat.since:.1f} s while {beat.phase.name.lower()}", frozen=False)
    return None


def _limit(phase: Phase, limits: Limits, median_step_s: float) -> float | None:
    match phase:
        case Phase.STARTING:
            return limits.start_s
        case Phase.STEPPING | Phase.USER | Phase.ENDING:
            return max(limits.progress_s, SLOW_STEPS * median_step_s)
        case Phase.COMPILING:
            return limits.compile_s
        case Phase.VALIDATING:
            return limits.validation_s
        case Phase.SAVING:
            return limits.saving_s
        case Phase.WAITING | Phase.ENTERING | Phase.SYNCING | Phase.AFTER:
            return None


@dataclass
class StepTimes:
    """How long a worker's recent steps took, as far as an occasional look at its pulse can tell."""

    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    _last: tuple[int, float] | None = None

    def look(self, step: int, now: float) -> None:
        """Take a reading of the step counter."""
        if self._last is None or step < self._last[0]:
            self._last = (step, now)
        elif step > self._last[0]:
            self._recent.append((now - self._last[1]) / (step - self._last[0]))
            self._last = (step, now)

    @property
    def median_s(self) -> float:
        return statistics.median(self._recent) if self._recent else 0.0
