"""Horovod's elastic driver, with what a cluster needs on which other jobs run too, and with an end.

Who has failed or asks for a rank waits in it, in a thread of its own, until all others have done so too.
With the job over nobody comes any more, and Horovod leaves these threads, and whoever joins them, waiting.
"""

import contextlib
import threading
from typing import Any

from horovod.runner.elastic.driver import ElasticDriver


class Driver(ElasticDriver):  # type: ignore[misc]
    """Decides who is in the world; arguments are Horovod's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._without_room: dict[str, int] = {}
        self._ban = self._host_manager.blacklist
        self._host_manager.blacklist = self._blacklist

    def no_room(self, host: str, fits: int) -> None:
        """Hear that the slots of a host beyond the first `fits` are about to fail, and the host is not to blame."""
        self._without_room[host] = fits

    def is_counted(self, host: str, local_rank: int) -> bool:
        """Tell whether a slot is held for ready, or failed, in a round that is not complete."""
        return (host, local_rank) in self._worker_registry.get_recorded_slots()

    def finish(self) -> None:
        """Tell all slots to end, and let go of everybody who waits for others."""
        with self._wait_hosts_cond:
            self._shutdown.set()
            self._wait_hosts_cond.notify_all()
        barrier = self._worker_registry._barrier  # none before there are slots
        if barrier is not None:
            barrier.abort()

    def _handle_worker_exit(self, slot_info: Any, exit_code: int, timestamp: float) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            super()._handle_worker_exit(slot_info, exit_code, timestamp)

    def _blacklist(self, host: str) -> None:
        fits = self._without_room.pop(host, 0)
        if fits:
            self._host_manager._current_hosts.host_slots[host] = fits
        else:
            self._ban(host)
