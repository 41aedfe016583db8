"""What happens to a frame on one direction of a host's link. Pure: times and draws are arguments.

A frame takes two ways: out of the host that sends it and into the one that it is for. On each it may
be lost, wait for those before it, and be delayed; on one way frames never overtake each other.
"""

import math
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Way:
    """How one direction of a host's link is.

    Attributes:
        delay_s: added to each frame.
        loss: the share of frames, in [0, 1], that are lost.
        rate: bytes a second; 0: as many as come.
        backlog_s: a frame that would wait longer than this for the rate is dropped, as by a full queue.
        cut: nothing passes.
    """

    delay_s: float = 0.0
    loss: float = 0.0
    rate: float = 0.0
    backlog_s: float = 0.5
    cut: bool = False

    def __post_init__(self) -> None:
        """Refuse what no link can be.

        Raises:
            ValueError: with what was found and expected.
        """
        for name in ("delay_s", "rate", "backlog_s"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected 0 or more")
        if not 0.0 <= self.loss <= 1.0:
            raise ValueError(f"loss: found {self.loss}, expected a share between 0 and 1")


CLEAR = Way()
CUT = Way(cut=True)


@dataclass(frozen=True, slots=True)
class Line:
    """What is under way on a way.

    Attributes:
        sent_at: when the last frame that the rate lets through has been sent.
        last_at: when the last frame arrives.
    """

    sent_at: float = -math.inf
    last_at: float = -math.inf


class Fate(StrEnum):
    """What becomes of a frame."""

    PASSED = "passed"
    CUT = "cut"
    LOST = "lost"
    CROWDED = "crowded"


def cross(way: Way, line: Line, size: int, now: float, draw: float) -> tuple[Fate, float, Line]:
    """Decide what becomes of a frame that comes to a way.

    Args:
        way: how the way is.
        line: what is under way on it.
        size: of the frame, in bytes.
        now: the time in seconds, on the clock of `line`.
        draw: in [0, 1), for the loss.

    Returns:
        Its fate, when it arrives (only for one that passes), and what is under way after it.
    """
    if way.cut:
        return Fate.CUT, now, line
    if draw < way.loss:
        return Fate.LOST, now, line
    sent_at = now
    if way.rate:
        begins = max(now, line.sent_at)
        if begins - now > way.backlog_s:
            return Fate.CROWDED, now, line
        sent_at = begins + size / way.rate
    at = max(sent_at + way.delay_s, line.last_at)
    return Fate.PASSED, at, Line(sent_at, at)


BROADCAST_BIT = 1


def targets(frame: bytes, port: str, seen: dict[bytes, str], ports: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ports that a frame goes to, and remember where its sender is, as a learning switch does.

    Args:
        frame: an Ethernet frame.
        port: where it came in.
        seen: ports by the addresses behind them; the sender's is added.
        ports: all there are.
    """
    to, sender = frame[:6], frame[6:12]
    if not sender[0] & BROADCAST_BIT:
        seen[sender] = port
    known = seen.get(to) if not to[0] & BROADCAST_BIT else None
    if known is not None:
        return (known,) if known != port else ()
    return tuple(other for other in ports if other != port)
