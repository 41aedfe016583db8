"""This host's notice that it will be taken away: from the cloud to the agent, and to the launcher's host.

The metadata server that knows of it answers on this host only, so the agent looks. What it finds it
posts in the run directory, where discovery, on the launcher's host, takes the host off its list.
"""

from dataclasses import dataclass
from pathlib import Path

from discovery.notices.notice import Notice, Watcher, cloud_here, source_of
from discovery.notices.posted import post
from elastic.agent.inbox import Inbox


@dataclass(frozen=True, slots=True)
class Clouds:
    """Whom to ask; see `config.Preemption`."""

    cloud: str
    endpoint: str | None
    period_s: float
    rebalance: bool


class Preemption:
    """Waits for the notice in a thread of its own; `fd` is readable when there is one.

    Args:
        clouds: how to ask.
        cloud: which one this host is in.
        folder: where it is posted for the launcher's host.
        host: this one, as the launcher names it.
    """

    def __init__(self, clouds: Clouds, cloud: str, folder: Path, host: str) -> None:
        self._watcher = Watcher(
            source_of(cloud, clouds.endpoint, rebalance=clouds.rebalance), clouds.period_s, self._tell
        )
        self._folder = folder
        self._host = host
        self._told: Inbox[Notice] = Inbox()
        self.fd = self._told.fd

    def start(self) -> None:
        """Begin to look."""
        self._watcher.start()

    def notice(self) -> Notice | None:
        """Return the notice that has come, if one has."""
        told = self._told.take()
        return told[-1] if told else None

    def _tell(self, notice: Notice) -> None:
        post(self._folder, self._host, notice)
        self._told.put(notice)


def preemption_of(clouds: Clouds, folder: Path, host: str) -> Preemption | None:
    """Return what waits for this host's notice; None where there is nobody to ask."""
    cloud = cloud_here() if clouds.cloud == "auto" else clouds.cloud
    return None if cloud in (None, "none") else Preemption(clouds, str(cloud), folder, host)
