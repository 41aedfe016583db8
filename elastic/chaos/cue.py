"""When a fault is due: a decision on what has happened since it came to be the next one."""

from elastic.chaos.plan import Planned
from elastic.events import Record


class Cue:
    """Watches out for one fault's conditions, in the order that `plan` tells of."""

    def __init__(self, planned: Planned) -> None:
        self._planned = planned
        self._heard = 0
        self._reached = False
        self._since: float | None = None

    def hear(self, record: Record) -> None:
        """Hear of a fact that was recorded after the fault became the next one."""
        if self._reached and record.event == self._planned.event:
            self._heard += 1

    def due(self, step: int, training_s: float, now: float) -> bool:
        """Tell whether all conditions but the target's phase have come true; once they have, they stay so.

        Args:
            step: that training has reached.
            training_s: seconds since the first step; below 0 before it.
            now: monotonic seconds.
        """
        planned = self._planned
        if not self._reached:
            if step < (planned.step or 0) or training_s < (planned.at_s if planned.at_s is not None else -1.0):
                return False
            self._reached = True
        if planned.event is not None and self._heard < planned.count:
            return False
        if self._since is None:
            self._since = now
        return now - self._since >= planned.delay_s
