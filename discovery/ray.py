"""The nodes of a Ray cluster."""

import math
from typing import Any

from discovery.hosts import Host, Hosts, LeftOut, SourceError, host
from discovery.source import Bounded


class Ray:
    """Asks a Ray cluster for its nodes.

    Args:
        address: of the cluster; `auto` is the one that this machine is part of.
        resource: which of a node's resources makes slots: `GPU` where there is one, otherwise `CPU`; None
            chooses so.
        per_slot: how much of it a worker takes.
    """

    period_s = 2.0

    def __init__(self, address: str = "auto", resource: str | None = None, per_slot: float = 1.0) -> None:
        self.name = f"ray {address}"
        self._address = address
        self._resource = resource
        self._per_slot = per_slot
        self._joined = False
        self._bounded = Bounded(self._ask, self.name)

    def find(self, timeout_s: float) -> Hosts:
        """Return the nodes that are alive."""
        return self._bounded.find(timeout_s)

    def close(self) -> None:
        """Leave the cluster."""
        if self._joined:
            import ray

            self._joined = False
            ray.shutdown()

    def _ask(self) -> Hosts:
        import ray

        try:
            if not self._joined:
                ray.init(address=self._address, logging_level="ERROR", log_to_driver=False)
                self._joined = True
            nodes = ray.nodes()
        except Exception as error:  # noqa: BLE001 - Ray raises many kinds; none of them may end discovery
            self.close()
            raise SourceError(f"Ray at {self._address} cannot be asked: {str(error).partition(chr(10))[0]}") from None
        return hosts_of(nodes, self._resource, self._per_slot)


def hosts_of(nodes: list[dict[str, Any]], resource: str | None, per_slot: float) -> Hosts:
    """Return the hosts among what `ray.nodes()` returns."""
    hosts: list[Host] = []
    left_out: list[LeftOut] = []
    for node in nodes:
        name = str(node.get("NodeManagerHostname") or node.get("NodeManagerAddress") or "?")
        if not node.get("Alive"):
            continue  # Ray names the dead for ever
        has = node.get("Resources", {})
        kind = resource or ("GPU" if has.get("GPU") else "CPU")
        slots = math.floor(has.get(kind, 0.0) / per_slot)
        if slots < 1:
            left_out.append(LeftOut(name, f"it has {has.get(kind, 0.0):g} {kind}, and a worker takes {per_slot:g}"))
            continue
        found = host(name, slots)
        if isinstance(found, Host):
            hosts.append(found)
        else:
            left_out.append(LeftOut(name, found))
    return Hosts(tuple(hosts), tuple(left_out))
