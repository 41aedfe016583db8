"""What this worker itself needs of a step, which the step's own length does not show: all wait for the slowest."""

import statistics
from collections import deque
from dataclasses import dataclass, field

from elastic.stragglers import STEPS


@dataclass
class OwnTime:
    """From the end of a step until this worker's gradients of the next are ready, as a median over recent steps.

    It holds all that others must wait for: callbacks, data, forward and backward pass. Rare long ones,
    such as the validation between two epochs, do not move a median.
    """

    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS))
    _ended_at: float | None = None

    def begin(self) -> None:
        """Begin anew: another world, other shares of a batch."""
        self._recent.clear()
        self._ended_at = None

    def step(self, arrived_at: float, ended_at: float) -> None:
        """Take a completed step: when its gradients were ready here and when it was over, in seconds since 1970."""
        if self._ended_at is not None and arrived_at >= self._ended_at:
            self._recent.append(arrived_at - self._ended_at)
        self._ended_at = ended_at

    @property
    def median_s(self) -> float:
        """Seconds; 0 until enough steps are done."""
        return statistics.median(self._recent) if len(self._recent) == STEPS else 0.0
