"""A Ray cluster as the driver reaches it: joined or started, looked at, asked to grow."""

import os
import time
from collections.abc import Sequence
from typing import Any

import psutil
import ray
from ray._private.state import available_resources_per_node, state
from ray.autoscaler.sdk import request_resources

from elastic.config import Config
from elastic.errors import ConfigError
from elastic.launch.ray.nodes import Node, host_of

LOCAL = "local"
OBJECT_STORE_BYTES = 80 * 2**20  # nothing is kept in it; Ray's least is 75 MiB
RETRY_S = 1.0


def address_of(config: Config, environ: dict[str, str]) -> str:
    """Return the address of the cluster to use; `local` for one of the job's own.

    Raises:
        ConfigError: for an address of Ray Client, through which nothing but calls would pass.
    """
    address = config.ray.address or environ.get("RAY_ADDRESS") or LOCAL
    if address.startswith(("ray://", "http://", "https://")):
        raise ConfigError(
            f"ray.address: found {address!r}, expected the address of the head node, such as 10.0.0.1:6379, or 'auto'; "
            "from outside of the cluster: `ray job submit -- elastic run ...`"
        )
    return address


def connect(config: Config, namespace: str) -> None:
    """Start a cluster on this machine, or join the one that is there, waiting for a head that is down.

    Raises:
        ConfigError: when there is none at the address within `network.start_timeout_s`.
    """
    address = address_of(config, dict(os.environ))
    options: dict[str, Any] = {
        "namespace": namespace,
        "log_to_driver": False,
        "logging_level": "WARNING",
        "runtime_env": config.ray.runtime_env or None,
    }
    if address == LOCAL:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_worker_niceness", "0")
        ray.init(address=LOCAL, **options, **own_cluster(config, psutil.cpu_count() or 1))
        return
    deadline = time.monotonic() + config.network.start_timeout_s
    while True:
        try:
            ray.init(address=address, **options)
        except (ConnectionError, RuntimeError, TimeoutError) as error:
            if time.monotonic() > deadline:
                raise ConfigError(f"ray.address: no cluster at {address!r}: {error}") from None
            time.sleep(RETRY_S)
        else:
            return


def own_cluster(config: Config, cores: int) -> dict[str, Any]:
    """Return how to start a cluster for this job alone: with room for all its workers on however many cores."""
    slot, most = config.ray, config.workers.max
    return {
        "num_cpus": max(cores, round(slot.cpus * most + 0.5)),
        "resources": {name: amount * most for name, amount in slot.resources.items()} or None,
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE_BYTES,
        "_node_ip_address": "127.0.0.1",
    }


def nodes() -> list[Node]:
    """Return the nodes that Ray holds for alive, this driver's first."""
    free, draining = available_resources_per_node(), state.get_draining_nodes()
    here = ray.get_runtime_context().get_node_id()
    found = [
        Node(
            id=raw["NodeID"],
            host=host_of(_name(raw), raw["NodeID"]),
            address=raw["NodeManagerAddress"],
            port=raw["NodeManagerPort"],
            total=raw["Resources"],
            free=free.get(raw["NodeID"], {}),
            draining=raw["NodeID"] in draining,
        )
        for raw in ray.nodes()
        if raw["Alive"]
    ]
    return sorted(found, key=lambda node: (node.id != here, node.id))


def _name(raw: dict[str, Any]) -> str:
    """Return the name that a node was started with, else its machine's: Ray names nodes after their address."""
    given: str = raw["NodeName"]
    return given if given and given != raw["NodeManagerAddress"] else raw["NodeManagerHostname"]


def ask_for(bundles: Sequence[dict[str, float]]) -> None:
    """Ask the autoscaler to have room for these, all at once; for nothing takes the request back."""
    request_resources(bundles=list(bundles))


class Placed:
    """An actor that Ray has been asked for.

    Args:
        actor: its handle; None when it could not even be asked for.
        why: then the reason.
    """

    def __init__(self, actor: Any, why: str | None = None) -> None:
        self._actor = actor
        self._why = why
        self._served = actor.serve.remote() if actor is not None else None

    def failure(self) -> str | None:
        """Return why it has ended or will not come; None while neither is known."""
        if self._why is None and ray.wait([self._served], timeout=0)[0]:
            try:
                self._why = f"ended with code {ray.get(self._served)}"
            except ray.exceptions.RayError as error:
                self._why = str(error).strip().splitlines()[0]
        return self._why

    def kill(self) -> None:
        """End it, or take the request back."""
        if self._actor is not None:
            ray.kill(self._actor)
