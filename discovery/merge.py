"""Several answers become one list, in which each host is named once."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from discovery.hosts import Host, Hosts, LeftOut

HERE = "this machine"  # stands for all addresses of the machine that discovery runs on

NO_IPV6 = "Horovod's launcher splits its hosts at ':' and cannot take an IPv6 address; give the host a name"


@dataclass(frozen=True, slots=True)
class Merged:
    """Hosts, each once, in the order of the sources.

    Attributes:
        local: those that are this machine.
    """

    hosts: tuple[Host, ...]
    left_out: tuple[LeftOut, ...]
    local: frozenset[str]


def merge(
    found: Iterable[Hosts],
    addresses: Mapping[str, frozenset[str]],
    listed: Collection[str],
    *,
    canonical: bool,
) -> Merged:
    """Make one list of what the sources have found.

    A host that is named twice is one: its name with other capitals or a final dot, an alias, its full
    name, its address. Listed is the name that the launcher already knows, otherwise the first one that
    is no address. The first mention says how many slots it has.

    Args:
        found: what each source has found, in their order.
        addresses: of each name as far as they are known; `HERE` among them for this machine.
        listed: the names that the launcher knows.
        canonical: False takes names as they are given, each for a host of its own.
    """
    left_out: list[LeftOut] = []
    firsts: list[Host] = []  # the first mention of each host
    others: dict[int, list[Host]] = {}  # the later ones, by the place of the first
    by_key: dict[str, int] = {}
    local: set[int] = set()
    nothing = frozenset[str]()
    for hosts in found:
        left_out += hosts.left_out
        for host in hosts.hosts:
            known = addresses.get(host.name, nothing)
            keys = _keys(host.name, known) if canonical else (host.name,)
            place = next((by_key[key] for key in keys if key in by_key), len(firsts))
            for key in keys:
                by_key.setdefault(key, place)
            if HERE in known:
                local.add(place)
            same = host if not canonical or keys[-1] == host.name else Host(keys[-1], host.slots)
            if place == len(firsts):
                firsts.append(same)
            else:
                others.setdefault(place, [firsts[place]]).append(same)
    kept, here = [], set()
    for place, first in enumerate(firsts):
        host = first if place not in others else _chosen(others[place], listed, left_out)
        if ":" in host.name:
            left_out.append(LeftOut(host.name, NO_IPV6))
            continue
        kept.append(host)
        if place in local:
            here.add(host.name)
    return Merged(tuple(kept), tuple(left_out), frozenset(here))


def _keys(name: str, known: frozenset[str]) -> tuple[str, ...]:
    """Return what a host is known by; its name, in the form in which it is compared, comes last."""
    return (HERE, plain(name)) if HERE in known else (*known, plain(name))


def plain(name: str) -> str:
    """Return the form in which a name is compared."""
    return name.lower().rstrip(".")


def _chosen(members: list[Host], listed: Collection[str], left_out: list[LeftOut]) -> Host:
    first = members[0]
    if len(members) == 1:
        return first
    names = [m.name for m in members]
    name = next((n for n in names if n in listed), None) or next((n for n in names if not _is_address(n)), None)
    chosen = Host(name or next((n for n in names if ":" not in n), names[0]), first.slots)
    for other in members:
        if other.slots != first.slots:
            left_out.append(LeftOut(other.line, f"the same host as {chosen.line}; the first mention counts"))
        elif other.name != chosen.name:
            left_out.append(LeftOut(other.name, f"the same host as {chosen.name}"))
    return chosen


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
