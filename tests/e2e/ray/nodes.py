"""A Ray cluster of several nodes on this machine, as a test drives it."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil
from ray._private import utils
from ray._private.ray_constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL, PROCESS_TYPE_RAYLET
from ray._raylet import GcsClient
from ray.cluster_utils import Cluster
from ray.core.generated import autoscaler_pb2

from elastic.launch.ray.nodes import host_of

PATIENCE_S = 60.0
SMALL = {"object_store_memory": 80 * 2**20, "include_dashboard": False}


@dataclass
class RayNode:
    """One node: its handle, its name as a host, its raylet."""

    handle: Any
    host: str

    @property
    def raylet(self) -> psutil.Process:
        found = self.handle.all_processes[PROCESS_TYPE_RAYLET][0].process.pid
        return psutil.Process(found)

    def workers(self) -> list[psutil.Process]:
        """Return the processes that the raylet has started, with theirs."""
        return self.raylet.children(recursive=True)


class Nodes:
    """A cluster whose head has no CPU unless it is given some: the nodes that come and go do the work."""

    def __init__(self, head_cpus: int = 0, **head: Any) -> None:
        self._cluster = Cluster()
        self._nodes: list[RayNode] = []
        self._dashboard = bool(head.get("include_dashboard"))
        self._head_options = {"cpus": head_cpus, "name": "head", **head}
        self.head = self._add(**self._head_options)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def dashboard(self) -> str:
        return str(self._cluster.webui_url)

    def add(self, cpus: int = 1, name: str = "node", **more: Any) -> RayNode:
        """Start a node and wait until the cluster knows it."""
        node = self._add(cpus, name, **more)
        self._nodes.append(node)
        return node

    def _add(self, cpus: int, name: str, **more: Any) -> RayNode:
        with minimal_agent() if not self._dashboard else contextlib.nullcontext():
            try:
                handle = self._cluster.add_node(num_cpus=cpus, node_name=name, **(SMALL | more))
            except Exception as error:
                if "timed out during startup" not in str(error):
                    raise
                # A raylet ends itself when its agents take more than 15 s to start, as on a busy machine.
                handle = self._cluster.add_node(num_cpus=cpus, node_name=name, **(SMALL | more))
        return RayNode(handle, host_of(name, handle.node_id))

    def kill(self, node: RayNode) -> None:
        """Kill a node's raylet and all that it has started, as a machine that is reset does."""
        self._kill_processes(node)
        self._nodes.remove(node)

    def _kill_processes(self, node: RayNode) -> None:
        for part in [each for parts in node.handle.all_processes.values() for each in parts]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(part.process.pid)
                process.suspend()  # so that it starts nobody else meanwhile
                for each in [*process.children(recursive=True), process]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        each.send_signal(signal.SIGKILL)

    def kill_head(self) -> None:
        """Kill the head and all that runs there, as a machine that is reset does; the other nodes are left alone."""
        self._cluster.global_state.disconnect()  # this process would end with what it is connected to
        self._kill_processes(self.head)

    def replace_head(self) -> None:
        """Start a new head at the address of the one that was killed; it knows nothing."""
        port = int(self.address.rpartition(":")[2])
        self.clear()
        self._cluster.remove_node(self.head.handle)
        self.head = self._add(**self._head_options, gcs_server_port=port)

    def freeze(self, node: RayNode) -> None:
        """Stop a node's raylet alone; `thaw` lets it go on."""
        node.raylet.suspend()

    def thaw(self, node: RayNode) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            node.raylet.resume()

    def remove(self, node: RayNode) -> None:
        """Take a node away, processes and all."""
        if node in self._nodes:
            self._nodes.remove(node)
        self._cluster.remove_node(node.handle)

    def clear(self) -> None:
        """Take all nodes but the head away."""
        for node in list(self._nodes):
            self.remove(node)

    def drain(self, node: RayNode, within_s: float) -> None:
        """Announce that a node will go, as a spot notice does."""
        deadline_ms = int((time.time() + within_s) * 1000)
        reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        accepted, why = GcsClient(address=self.address).drain_node(node.handle.node_id, reason, "spot", deadline_ms)
        assert accepted, why

    def actors(self) -> list[dict[str, Any]]:
        """Return the actors that are alive or about to be."""
        table = self._cluster.global_state.actor_table(None, None, None)
        return [actor for actor in table.values() if actor["State"] != "DEAD"]

    def placement_groups(self) -> list[str]:
        """Return the placement groups that are not removed."""
        table = self._cluster.global_state.placement_group_table()
        return [group["name"] for group in table.values() if group["state"] != "REMOVED"]

    def requested(self) -> bytes:
        """Return what the autoscaler has been asked for."""
        return GcsClient(address=self.address).internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL, None) or b"[]"

    def forget_requests(self) -> None:
        """Take back what the autoscaler has been asked for by somebody who is gone."""
        GcsClient(address=self.address).internal_kv_put(AUTOSCALER_RESOURCE_REQUEST_CHANNEL, b"[]", True, None)

    def free_cpus(self) -> float:
        per_node = self._cluster.global_state.available_resources_per_node()
        return sum(free.get("CPU", 0.0) for free in per_node.values())

    def close(self) -> None:
        self._cluster.shutdown()


@contextlib.contextmanager
def minimal_agent() -> Iterator[None]:
    """Start nodes as without `ray[default]`, which costs each a second more, for a dashboard that nobody looks at."""
    found = utils.get_dashboard_dependency_error
    utils.get_dashboard_dependency_error = lambda: ImportError("not needed")
    try:
        yield
    finally:
        utils.get_dashboard_dependency_error = found


def wait_until(
    what: Callable[[], bool], within_s: float = PATIENCE_S, found: Callable[[], object] | None = None
) -> None:
    """Return once it is so; `found` tells what there is instead."""
    deadline = time.monotonic() + within_s
    while not what():
        instead = f": {found()}" if found is not None else ""
        assert time.monotonic() < deadline, f"it did not come true within {within_s} s{instead}"
        time.sleep(0.05)
