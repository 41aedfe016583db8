"""Faults of the network, for a job whose hosts are joined by the switch."""

from collections.abc import Sequence

from elastic.chaos.kinds import Kind
from elastic.chaos.net.control import Ways
from elastic.chaos.net.hosts import Net, missing, missing_switch
from elastic.chaos.net.way import CLEAR, CUT, Way
from elastic.chaos.plan import Planned

LAUNCHER = "h0"  # has no worker


def hosts_of(count: int) -> tuple[str, ...]:
    """Return the `host:slots` lines of a job on that many hosts of one slot each."""
    return tuple(f"h{number}:1" for number in range(1, count + 1))


def obstacle(hosts: int | None) -> str | None:
    """Return what keeps the network from being broken, or None.

    Args:
        hosts: of the plan.
    """
    if hosts is None:
        return "the plan has no hosts of their own; give it some, such as `hosts: 2`"
    return missing() or missing_switch() or None


def spoil(fault: Planned, hosts: Sequence[str], net: Net) -> None:
    """Begin a fault on these hosts."""
    _change(fault, hosts, net, ways_of(fault), whole=False)


def restore(fault: Planned, hosts: Sequence[str], net: Net) -> None:
    """End it."""
    _change(fault, hosts, net, Ways(CLEAR, CLEAR), whole=True)


def _change(fault: Planned, hosts: Sequence[str], net: Net, ways: Ways, *, whole: bool) -> None:
    if fault.kind is Kind.DNS_FAILURE:
        net.know_names(whole)
        return
    for host in hosts:
        if fault.kind is Kind.LINK_DOWN:
            (net.plug_in if whole else net.unplug)(host)
        elif net.switch is not None:
            net.switch.set(host, ways)


def ways_of(fault: Planned) -> Ways:
    """Return what a fault makes of a host's link, there and back; the draw chooses the half that stays open."""
    match fault.kind:
        case Kind.NET_DELAY:
            way = Way(delay_s=fault.amount)
        case Kind.NET_LOSS:
            way = Way(loss=fault.amount)
        case Kind.NET_RATE:
            way = Way(rate=fault.amount)
        case Kind.HALF_OPEN:
            return Ways(out=CUT) if fault.draw < 0.5 else Ways(into=CUT)
        case _:
            way = CUT
    return Ways(way, way)
