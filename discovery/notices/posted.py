"""A folder in which hosts post their notices, and the launcher's host reads them.

A notice holds while its host posts it again and again, and `LASTS_S` longer; by then the host is gone.
How long that is tells the reader's own clock, since clocks of hosts differ.
"""

import contextlib
import json
import os
from pathlib import Path

from discovery.notices.notice import Notice
from discovery.place import replace

LASTS_S = 120.0


def post(folder: Path, host: str, notice: Notice) -> None:
    """Leave a host's notice; never raises: a host that cannot post is still drained.

    Args:
        folder: on a file system that all hosts of the job see.
        host: as the launcher names it.
        notice: of that host.
    """
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        told = json.dumps({"host": host, "reason": notice.reason, "in_s": notice.in_s})
        replace(folder / f"{host}.json", told)


class Posted:
    """Reads the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, tuple[int, float, str, str]] = {}  # by file: its stamp, since when, host, reason

    def read(self, now: float) -> dict[str, str]:
        """Return the hosts whose notices hold, with the reason; `now` in seconds of the reader's clock."""
        there = {}
        with contextlib.suppress(OSError):
            there = {entry.name: entry.stat().st_mtime_ns for entry in os.scandir(self._folder) if entry.name[0] != "."}
        for name, stamp in there.items():
            seen = self._seen.get(name)
            if seen is None or seen[0] != stamp:
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    told = json.loads((self._folder / name).read_text(encoding="utf-8"))
                    self._seen[name] = stamp, now, str(told["host"]), str(told["reason"])
        held = [s for name, s in self._seen.items() if name in there and now - s[1] <= LASTS_S]
        return {host: f"it has notice: {reason}" for _, _, host, reason in held}
