"""Notices, whoever gives them, and the thread that waits for one."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

TIMEOUT_S = 2.0
VENDORS = {"Amazon EC2": "ec2", "Google": "gce", "Microsoft Corporation": "azure"}
_VENDOR = Path("/sys/class/dmi/id/sys_vendor")


@dataclass(frozen=True, slots=True)
class Notice:
    """This host will be taken away.

    Attributes:
        reason: in plain words, with who said it.
        in_s: how long it has from now on, None if that was not said.
    """

    reason: str
    in_s: float | None = None


class NoticeError(Exception):
    """It cannot be known whether there is a notice."""


class NoticeSource(Protocol):
    """Who gives notice of this host."""

    def look(self) -> Notice | None:
        """Return the notice if there is one.

        Raises:
            NoticeError: when that cannot be known.
        """


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: str


def call(
    endpoint: str, path: str, headers: Mapping[str, str], method: str = "GET", timeout_s: float = TIMEOUT_S
) -> Response:
    """Ask a metadata server, never through a proxy.

    Raises:
        NoticeError: when it cannot be reached.
    """
    import http.client  # not before there is a cloud to ask: an agent starts in a tenth of a second

    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=timeout_s)
    try:
        connection.request(method, path, headers=dict(headers))
        response = connection.getresponse()
        return Response(response.status, response.read(1 << 20).decode(errors="replace"))
    except (OSError, http.client.HTTPException) as error:
        raise NoticeError(f"{endpoint}{path}: {error or type(error).__name__}") from None
    finally:
        connection.close()


def cloud_here(vendor: Path = _VENDOR) -> str | None:
    """Return which cloud this machine is in (`ec2`, `gce`, `azure`), from what its firmware says; None if in none."""
    try:
        return VENDORS.get(vendor.read_text(encoding="utf-8", errors="replace").strip())
    except OSError:
        return None


def source_of(cloud: str, endpoint: str | None = None, *, rebalance: bool = False) -> NoticeSource:
    """Return who gives notice in a cloud: `ec2`, `gce` or `azure`; `rebalance`: see `Ec2`."""
    if cloud == "ec2":
        from discovery.notices import ec2

        return ec2.Ec2(endpoint or ec2.ENDPOINT, rebalance=rebalance)
    if cloud == "gce":
        from discovery.notices import gce

        return gce.Gce(endpoint or gce.ENDPOINT)
    if cloud == "azure":
        from discovery.notices import azure

        return azure.Azure(endpoint or azure.ENDPOINT)
    raise ValueError(f"found cloud {cloud!r}, expected ec2, gce or azure")


class Watcher:
    """Looks for a notice every so often, in a thread of its own.

    Args:
        source: who gives notice.
        period_s: between two looks.
        tell: called on that thread at each look that finds a notice, with the notice.
    """

    def __init__(self, source: NoticeSource, period_s: float, tell: Callable[[Notice], None]) -> None:
        self._source = source
        self._period_s = period_s
        self._tell = tell
        self._closed = threading.Event()
        self.error = ""  # why the last look failed

    def start(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._watch, name="notices", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.is_set():
            try:
                found = self._source.look()
                self.error = ""
            except NoticeError as error:
                found, self.error = None, str(error)
            if found is not None:
                self._tell(found)
            self._closed.wait(self._period_s)
