"""Which nodes a job may use, and how much of each: pure decisions on a snapshot of the cluster.

Hosts are named after their node, not their address: two nodes of one machine are two hosts, and a
node that comes back is a new one. A node's slots are those that this job runs there, and those that
fit into what nobody uses. Ray tells that with a delay, so a node on which this job has just taken
or left something does not grow before `SETTLE_S`.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

SETTLE_S = 2.0
_ROUNDING = 1e-4  # Ray counts in units of 1e-4


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is alive.

    Attributes:
        host: its name as a host.
        address, port: where its raylet listens.
        total, free: resources by name; `free` is what nobody uses.
        draining: it is about to go.
    """

    id: str
    host: str
    address: str
    port: int
    total: Mapping[str, float]
    free: Mapping[str, float]
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """What this job uses of a host: slots, and when that last changed."""

    slots: int
    changed: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job wants of a cluster.

    Attributes:
        takes: resources of one slot by name, all above 0.
        most: slots in all.
        placement: see `config.Ray`.
    """

    takes: Mapping[str, float]
    most: int
    placement: Literal["spread", "pack"] = "spread"


@dataclass(frozen=True, slots=True)
class Seen:
    """What else counts.

    Attributes:
        used: by host, what this job has taken.
        before: what was said last, in its order.
        gone: hosts whose raylet answers no more, though Ray does not know it yet.
        caps: by host, slots beyond which another job was faster.
    """

    used: Mapping[str, Use] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)
    gone: Collection[str] = ()
    caps: Mapping[str, int] = field(default_factory=dict)


def host_of(name: str, node_id: str) -> str:
    """Return a host's name: readable, without the `:` that Horovod splits at, and unlike any other node's."""
    return f"{re.sub(r'[^A-Za-z0-9.-]', '-', name)[:40]}-{node_id[:8]}"


def room(node: Node, takes: Mapping[str, float]) -> int:
    """Return how many slots fit into what is free."""
    return min(int((node.free.get(name, 0.0) + _ROUNDING) // amount) for name, amount in takes.items())


def slots(nodes: Sequence[Node], plan: Plan, seen: Seen, now: float) -> dict[str, int]:
    """Return the slots by host, `plan.most` at most, oldest hosts first.

    What was said before stays while it fits, so that a newcomer moves nobody.
    """
    fits = {}
    for node in _oldest_first(nodes, seen.before):
        if not node.draining and node.host not in seen.gone:
            fits[node.host] = _fit(node, plan, seen, now)
    left = plan.most
    chosen = {}
    for host, fit in fits.items():
        chosen[host] = min(fit, left, max(seen.before.get(host, 0), _used(seen, host)))
        left -= chosen[host]
    while left and (open_ := [host for host, fit in fits.items() if chosen[host] < fit]):
        chosen[open_[0] if plan.placement == "pack" else min(open_, key=lambda host: chosen[host])] += 1
        left -= 1
    return {host: count for host, count in chosen.items() if count}


def _oldest_first(nodes: Iterable[Node], before: Mapping[str, int]) -> list[Node]:
    order = {host: number for number, host in enumerate(before)}
    return sorted(nodes, key=lambda node: order.get(node.host, len(order)))


def _fit(node: Node, plan: Plan, seen: Seen, now: float) -> int:
    used = seen.used.get(node.host)
    own = used.slots if used else 0
    fit = min(own + room(node, plan.takes), seen.caps.get(node.host, plan.most))
    if used is not None and now - used.changed < SETTLE_S:
        return min(fit, max(own, seen.before.get(node.host, 0)))
    return fit


def _used(seen: Seen, host: str) -> int:
    return seen.used[host].slots if host in seen.used else 0


def wanted(nodes: Sequence[Node], plan: Plan, used: Mapping[str, Use]) -> list[dict[str, float]]:
    """Return what the autoscaler must have room for: the job at its largest, beside what others use.

    The autoscaler takes a request as the size that the cluster must have, whoever uses it; without
    the others' part it would count their nodes as this job's.
    """
    bundles = []
    for node in nodes:
        own = used[node.host].slots if node.host in used else 0
        others = {
            name: round(taken, 4)
            for name, amount in plan.takes.items()
            if (taken := node.total.get(name, 0.0) - node.free.get(name, 0.0) - own * amount) > _ROUNDING
        }
        if others and not node.draining:
            bundles.append(others)
    return bundles + [dict(plan.takes)] * plan.most
