"""What is believed of a source: its last good answer, until a better one is sure."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from discovery.decisions import Decision, Kind
from discovery.hosts import Hosts


@dataclass(frozen=True, slots=True)
class TrustRule:
    """When an answer counts.

    Attributes:
        empty_times: how often an empty answer must come in a row before it counts.
        stale_s: how long a good answer may be the last one before there is an alarm.
        when_stale: `keep` its hosts even then, or `drop` them.
    """

    empty_times: int = 3
    stale_s: float = 600.0
    when_stale: Literal["keep", "drop"] = "keep"


@dataclass(frozen=True, slots=True)
class Failure:
    """A source had no answer."""

    reason: str


@dataclass(frozen=True, slots=True)
class Trust:
    """What is believed of one source.

    Attributes:
        hosts: the last good answer; None before the first.
        good_at: when it was last confirmed.
        empties: how many empty answers have come since.
        failing: why there has been no answer since, if there has not.
        stale: the last good answer is too old.
    """

    hosts: Hosts | None = None
    good_at: float = -math.inf
    empties: int = 0
    failing: str = ""
    stale: bool = False

    def believed(self, rule: TrustRule) -> Hosts:
        """Return the hosts that count."""
        if self.hosts is None or (self.stale and rule.when_stale == "drop"):
            return Hosts()
        return self.hosts


def hear(
    trust: Trust, source: str, answer: Hosts | Failure, now: float, rule: TrustRule
) -> tuple[Trust, list[Decision]]:
    """Return what is believed after an answer."""
    if isinstance(answer, Failure):
        if trust.failing == answer.reason:
            return trust, []
        return replace(trust, failing=answer.reason), [Decision(Kind.SOURCE_FAILED, source, answer.reason)]
    told = (
        [Decision(Kind.SOURCE_RECOVERED, source, f"it answers again, after: {trust.failing}")] if trust.failing else []
    )
    had = trust.hosts is not None and trust.hosts.hosts
    if had and not answer.hosts:
        empties = trust.empties + 1
        if empties < rule.empty_times:
            if empties == 1:
                reason = f"an empty answer must come {rule.empty_times} times in a row; the hosts stay"
                told.append(Decision(Kind.EMPTY_DOUBTED, source, reason))
            return replace(trust, empties=empties, failing=""), told
        told.append(Decision(Kind.EMPTY_BELIEVED, source, f"the answer was empty {empties} times in a row"))
    return Trust(answer, now), told


def age(trust: Trust, source: str, now: float, rule: TrustRule) -> tuple[Trust, list[Decision]]:
    """Return what is believed when time has passed."""
    if trust.stale or trust.hosts is None or now - trust.good_at <= rule.stale_s:
        return trust, []
    then = "its hosts stay listed" if rule.when_stale == "keep" else "its hosts are dropped"
    why = trust.failing or "it has only given empty answers"
    reason = f"no good answer for {rule.stale_s:.0f} s ({why}); {then}"
    return replace(trust, stale=True), [Decision(Kind.ANSWER_STALE, source, reason)]
