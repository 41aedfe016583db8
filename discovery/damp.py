"""Changes reach the launcher late, together, and not again and again.

Each change of its hosts costs a launcher's job a new world. So whoever joins waits `settle_s` for
others to join with, and a host that has gone before is held out until it has stayed for a while:
nothing after the first time, then `hold_s`, twice that, and so on. What goes, goes at once, and
takes with it whoever waits to join: one change instead of two. Fewer slots are a going, more a joining.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from discovery.decisions import Decision, Kind
from discovery.hosts import Host

ABOUT_TO_JOIN = "it is about to be listed, with others that may come"


@dataclass(frozen=True, slots=True)
class DampRule:
    """How changes are slowed down.

    Attributes:
        settle_s: how long a host that may join waits for others.
        hold_s, most_s: how long a host must have stayed after its second going; at most.
        forgive_s: a host that stayed for so long has never gone.
    """

    settle_s: float = 0.5
    hold_s: float = 30.0
    most_s: float = 600.0
    forgive_s: float = 600.0

    def hold(self, goings: int) -> float:
        """Return how long a host must have stayed that has gone so often."""
        return 0.0 if goings < 2 else min(self.most_s, self.hold_s * 2.0 ** min(goings - 2, 30))


@dataclass(frozen=True, slots=True)
class Track:
    """What is remembered of a host.

    Attributes:
        wanted: the slots that are there, 0 without the host.
        since: when that last changed.
        listed: the slots that the launcher is told of.
        goings: how often slots went that were listed; fewer and fewer in a row is one going.
        shrunk: whether slots went since any came.
    """

    wanted: int
    since: float
    listed: int = 0
    goings: int = 0
    shrunk: bool = False


@dataclass(frozen=True, slots=True)
class Damping:
    """What is remembered; `order` are the listed hosts, the oldest first."""

    tracks: Mapping[str, Track] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    waiting_since: float | None = None

    @property
    def listed(self) -> tuple[Host, ...]:
        return tuple(Host(name, self.tracks[name].listed) for name in self.order)


@dataclass(frozen=True, slots=True)
class Damped:
    """What follows from a look at what is there.

    Attributes:
        held: hosts that are there and not listed, with the reason.
        wake_at: when to look again, whatever happens.
    """

    damping: Damping
    held: dict[str, str]
    decisions: list[Decision]
    wake_at: float


def damp(
    damping: Damping, there: Iterable[Host], gone_because: Mapping[str, str], now: float, rule: DampRule
) -> Damped:
    """Decide which of the hosts that are there the launcher is told of.

    Args:
        damping: what is remembered.
        there: the hosts that could take workers now.
        gone_because: reasons for hosts that could not.
        now: the time in seconds, never before that of the last call.
        rule: how changes are slowed down.
    """
    tracks = {name: t for name, t in damping.tracks.items() if t.wanted or t.listed or now - t.since <= rule.forgive_s}
    _note_arrivals(tracks, there, now, rule)
    decisions: list[Decision] = []
    held: dict[str, str] = {}
    may_join: list[str] = []
    wake_at = math.inf
    for name, track in list(tracks.items()):
        if track.wanted < track.listed:
            tracks[name], told = _go(name, track, gone_because.get(name, "no source names it any more"))
            decisions.append(told)
        elif track.wanted > track.listed:
            hold = rule.hold(track.goings)
            if now - track.since < hold:
                held[name] = (
                    f"it has gone {track.goings} times and must stay for {hold:.0f} s before it is listed again"
                )
                wake_at = min(wake_at, track.since + hold)
            else:
                may_join.append(name)
    waiting_since = damping.waiting_since
    if may_join:
        waiting_since = now if waiting_since is None else waiting_since
        if decisions or not damping.order or now - waiting_since >= rule.settle_s:
            for name in may_join:
                track = tracks[name]
                decisions.append(_join(name, track))
                tracks[name] = replace(track, listed=track.wanted, shrunk=False)
            waiting_since = None
        else:
            held |= dict.fromkeys(may_join, ABOUT_TO_JOIN)
            wake_at = min(wake_at, waiting_since + rule.settle_s)
    else:
        waiting_since = None
    order = tuple(name for name in damping.order if tracks[name].listed)
    known = frozenset(order)
    order += tuple(name for name in may_join if name not in known and tracks[name].listed)
    return Damped(Damping(tracks, order, waiting_since), held, decisions, wake_at)


def _note_arrivals(tracks: dict[str, Track], there: Iterable[Host], now: float, rule: DampRule) -> None:
    """Write down what is there and what is not."""
    found: set[str] = set()
    for host in there:
        found.add(host.name)
        track = tracks.get(host.name)
        if track is None:
            tracks[host.name] = Track(host.slots, now)
        elif track.wanted != host.slots:
            tracks[host.name] = _changed(track, host.slots, now, rule)
    if len(found) < len(tracks):
        for name, track in tracks.items():
            if track.wanted and name not in found:
                tracks[name] = _changed(track, 0, now, rule)


def _changed(track: Track, slots: int, now: float, rule: DampRule) -> Track:
    stayed = track.listed > 0 and now - track.since > rule.forgive_s
    return replace(track, wanted=slots, since=now, goings=0 if stayed else track.goings)


def _go(name: str, track: Track, reason: str) -> tuple[Track, Decision]:
    goings = track.goings if track.shrunk else track.goings + 1
    left = replace(track, listed=track.wanted, goings=goings, shrunk=True)
    if track.wanted:
        return left, Decision(Kind.SLOTS_CHANGED, name, f"it has {track.wanted} slots, no longer {track.listed}")
    return left, Decision(Kind.HOST_DROPPED, name, reason)


def _join(name: str, track: Track) -> Decision:
    if track.listed:
        return Decision(Kind.SLOTS_CHANGED, name, f"it has {track.wanted} slots, no longer {track.listed}")
    again = f" again, having gone {track.goings} times" if track.goings else ""
    return Decision(Kind.HOST_LISTED, name, f"it is there{again}, with {track.wanted} slots")
