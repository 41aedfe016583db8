"""What a daemon leaves for the one after it, and for those who ask why a host is in or out."""

from pathlib import Path
from typing import Any

from discovery.damp import Damping, Track
from discovery.gate import Health
from discovery.hosts import Host, Hosts
from discovery.listing import State, begin
from discovery.trust import Trust

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """Return what tells this start of the machine from others: clocks begin anew with each."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def dump(state: State, boot_id: str) -> dict[str, Any]:
    """Return what is worth to be remembered, as JSON takes it."""
    return {
        "boot": boot_id,
        "sources": {
            name: {
                "hosts": None if trust.hosts is None else [[h.name, h.slots] for h in trust.hosts.hosts],
                "good_at": trust.good_at if trust.hosts is not None else None,
                "failing": trust.failing,
            }
            for name, trust in state.trusts.items()
        },
        "tracks": {name: [t.wanted, t.since, t.listed, t.goings] for name, t in state.damping.tracks.items()},
        "order": list(state.damping.order),
        "listed": [[host.name, host.slots] for host in state.listed],
        "out": dict(state.out),
    }


def load(raw: dict[str, Any] | None, sources: list[str], boot_id: str) -> State:
    """Return the state to begin with: what an earlier daemon knew, if that is of this start of the machine."""
    fresh = begin(sources)
    if raw is None or raw.get("boot") != boot_id:
        return fresh
    try:
        trusts = dict(fresh.trusts)
        for name, told in raw["sources"].items():
            if name in trusts and told["hosts"] is not None:
                hosts = Hosts(tuple(Host(str(n), int(s)) for n, s in told["hosts"]))
                trusts[name] = Trust(hosts, float(told["good_at"]))
        tracks = {n: Track(int(w), float(t), int(s), int(g)) for n, (w, t, s, g) in raw["tracks"].items()}
        order = tuple(name for name in raw["order"] if tracks[name].listed)
    except (KeyError, TypeError, ValueError, AttributeError):
        return fresh
    health = {name: Health(True, "", 0, float("-inf")) for name in order}
    return State(trusts, health, Damping(tracks, order))
