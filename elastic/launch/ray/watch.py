"""Watches the cluster for a job, in a thread of its own, and answers Horovod's driver at once from what it saw.

Horovod's driver asks for hosts while it holds the lock that every recovery needs; a cluster that is slow to
answer must not hold that up.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from horovod.runner.elastic.discovery import HostDiscovery

from elastic.launch.ray.nodes import SETTLE_S, Node, Plan, Seen, Use, slots, wanted

PERIOD_S = 0.5
CAP_S = 30.0  # after another job was faster
ASK_AGAIN_S = 5.0  # a cluster has one request for all its jobs: the last job to ask, or to end, has overwritten it


class Watch(HostDiscovery):  # type: ignore[misc]
    """Which hosts this job may use.

    Args:
        plan: what the job wants.
        look: returns the nodes that are alive.
        ask: asks the autoscaler for room; None leaves it alone.
        now: seconds, monotonic.
    """

    def __init__(
        self,
        plan: Plan,
        look: Callable[[], Sequence[Node]],
        ask: Callable[[Sequence[dict[str, float]]], None] | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._look = look
        self._ask = ask
        self._now = now
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._used: dict[str, Use] = {}
        self._gone: set[str] = set()
        self._caps: dict[str, tuple[int, float]] = {}
        self._said: dict[str, int] = {}
        self._asked: list[dict[str, float]] = []
        self._asked_at = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watch", daemon=True)

    def start(self) -> None:
        """Look once, and go on looking.

        Raises:
            Exception: whatever the first look raises.
        """
        self.refresh()
        self._thread.start()

    def stop(self) -> None:
        """Look no more, and take back what was asked of the autoscaler."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(PERIOD_S + 5.0)
        if self._ask is not None and self._asked:
            self._ask([])
            self._asked = []

    def refresh(self) -> None:
        """Look at the cluster now."""
        found = self._look()
        with self._lock:
            self._nodes = {node.host: node for node in found}
            self._gone &= set(self._nodes)
            asked = wanted(found, self._plan, self._used)
            settling = any(self._now() - use.changed < SETTLE_S for use in self._used.values())
        if self._asked and settling:
            asked = self._asked
        again = bool(asked) and self._now() - self._asked_at >= ASK_AGAIN_S
        if self._ask is not None and (asked != self._asked or again):
            self._ask(asked)
            self._asked, self._asked_at = asked, self._now()

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the slots by host, oldest first, from the last look."""
        with self._lock:
            now = self._now()
            caps = {host: cap for host, (cap, until) in self._caps.items() if until > now}
            seen = Seen(self._used, self._said, self._gone, caps)
            self._said = slots(list(self._nodes.values()), self._plan, seen, now)
            return dict(self._said)

    def node(self, host: str) -> Node | None:
        """Return a host's node as last seen."""
        with self._lock:
            return self._nodes.get(host)

    def take(self, host: str, by: int) -> None:
        """Hear that this job has taken a slot of a host; -1: it has left one, 0: the one taken is in place now."""
        with self._lock:
            before = self._used.get(host)
            self._used[host] = Use((before.slots if before else 0) + by, self._now())

    def lost(self, host: str) -> None:
        """Hear that a host's raylet is gone, which Ray will notice later."""
        with self._lock:
            self._gone.add(host)

    def full(self, host: str, slots_: int) -> None:
        """Hear that a host has no room beyond so many slots, whatever it looked like."""
        with self._lock:
            self._caps[host] = (slots_, self._now() + CAP_S)

    def _work(self) -> None:
        while not self._end.wait(PERIOD_S):
            try:
                self.refresh()
            except Exception as error:  # noqa: BLE001 - the edge: Ray raises what it likes, and the next look may do
                logging.getLogger(__name__).warning("cannot look at the cluster: %s", error)
