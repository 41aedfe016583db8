"""How a running switch is told what its ways are to be, and says what has become of frames.

One packet a request, one packet an answer: a request holds the ways to change, by host; the answer
holds counts of frames by host, direction and fate, or an error.
"""

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from elastic.chaos.net.way import Fate, Way

PACKET = 1 << 16
ANSWER_S = 5.0
DIRECTIONS = ("out", "into")
Counts = Mapping[str, Mapping[str, Mapping[str, int]]]


@dataclass(frozen=True, slots=True)
class Ways:
    """Both directions of a host's link; None leaves one as it is."""

    out: Way | None = None
    into: Way | None = None


def request(changes: Mapping[str, Ways]) -> bytes:
    """Return a request as bytes."""
    plain = {
        host: {name: asdict(way) for name in DIRECTIONS if (way := getattr(ways, name)) is not None}
        for host, ways in changes.items()
    }
    return json.dumps(plain).encode()


def read_request(packet: bytes, hosts: tuple[str, ...]) -> dict[str, Ways]:
    """Return the changes that a request asks for.

    Raises:
        ValueError: when it is none, or of an unknown host.
    """
    try:
        plain = json.loads(packet)
        changes = {host: Ways(**{name: Way(**way) for name, way in ways.items()}) for host, ways in plain.items()}
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None
    for host in changes:
        if host not in hosts:
            raise ValueError(f"no host {host!r}; there are {', '.join(hosts)}")
    return changes


class Remote:
    """A switch in another process, at the other end of a socket.

    Args:
        to: a socket of packets.
    """

    def __init__(self, to: socket.socket) -> None:
        self._to = to
        to.settimeout(ANSWER_S)

    def set(self, changes: Mapping[str, Ways]) -> Counts:
        """Change ways; return the counts so far.

        Raises:
            ValueError: when the switch refuses.
            OSError: when it does not answer, or has ended.
        """
        self._to.send(request(changes))
        packet = self._to.recv(PACKET)
        if not packet:
            raise ConnectionError("the switch has ended")
        answer = json.loads(packet)
        if "error" in answer:
            raise ValueError(answer["error"])
        counts: Counts = answer["counts"]
        return counts

    def counts(self) -> Counts:
        """Return how many frames had which fate, by host and direction."""
        return self.set({})

    def close(self) -> None:
        """Let it end."""
        self._to.close()


def no_counts(hosts: tuple[str, ...]) -> dict[str, dict[str, dict[str, int]]]:
    """Return counts that count nothing yet."""
    return {host: {name: {fate.value: 0 for fate in Fate} for name in DIRECTIONS} for host in hosts}
