"""A host is listed only when it can take a worker, and dropped when it no longer shows that it can.

Horovod's launcher starts a worker on every host that it is told of, over ssh, and keeps off a host
where that has failed. So a host that is listed before its sshd answers is lost for a while.
"""

from dataclasses import dataclass
from enum import StrEnum


class Look(StrEnum):
    """How closely a host is looked at."""

    FULL = "full"  # everything that the rule asks for
    PULSE = "pulse"  # whether it is still there


@dataclass(frozen=True, slots=True)
class GateRule:
    """What a host must show.

    Attributes:
        check: `none` lets every host in; `tcp`: its sshd answers; `ssh`: also what `probe` finds there.
        fails: so many looks in a row must fail before a listed host is dropped.
        period_s: between two looks at a listed host.
        retry_s: between two looks at one that may not be listed, or has just failed.
    """

    check: str = "ssh"
    fails: int = 3
    period_s: float = 5.0
    retry_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a host.

    Attributes:
        open: it may be listed.
        why: what is wrong with it, if anything.
        fails: how many looks in a row have failed.
        looked_at: when the last look ended.
    """

    open: bool
    why: str
    fails: int
    looked_at: float


UNSEEN = Health(False, "it has not been looked at yet", 0, float("-inf"))


def judge(health: Health, wrong: str, now: float, rule: GateRule) -> Health:
    """Return what is known after a look.

    Args:
        health: what was known.
        wrong: what the look has found wrong; empty if nothing.
    """
    if not wrong:
        return Health(True, "", 0, now)
    fails = health.fails + 1
    if health.open and fails >= rule.fails:
        return Health(False, f"{rule.fails} health checks failed in a row; the last: {wrong}", fails, now)
    return Health(health.open, wrong, fails, now)


def due_at(health: Health, rule: GateRule) -> float:
    """Return when the host is to be looked at next."""
    return health.looked_at + (rule.period_s if health.open and not health.fails else rule.retry_s)


def look_for(health: Health) -> Look:
    """Return how closely to look at it: one that is listed has shown the rest before."""
    return Look.PULSE if health.open else Look.FULL
