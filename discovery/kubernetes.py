"""Pods of a label selector, or the endpoints of a service, of a Kubernetes cluster.

Theory of operation. A thread lists the objects once and then watches them from that resource version
on, so that `find` answers from memory. A watch that ends, by the server's time limit or a broken
connection, is begun again from the last version seen; only when the server has forgotten that version
(410 Gone) are the objects listed anew. What cannot be watched now is an error of the source, never an
empty list.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discovery.hosts import Host, Hosts, LeftOut, SourceError, host

WATCH_S = 240  # the server ends a watch after this time
SILENT_S = WATCH_S + 30.0
CONNECT_S = 3.0
RETRY_S = (0.2, 10.0)
GONE = 410
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Request = Callable[[str | None], Any]  # a resource version, None to list -> the raw response


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster to ask, as `kubectl` has it; in a pod its own, unless one is named.

    `namespace` is that of this pod by default, `default` elsewhere.
    """

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None

    @property
    def space(self) -> str:
        return self.namespace or _own_namespace()


@dataclass(frozen=True, slots=True)
class Slots:
    """How many workers a pod takes: its annotation, otherwise its resource, otherwise `default`."""

    default: int = 1
    annotation: str = "elastic/slots"
    resource: str = "nvidia.com/gpu"


class Kubernetes:
    """Watches one kind of object and says which hosts they are.

    Args:
        request: lists the objects, or watches them from a resource version on.
        hosts_of: makes hosts of the objects, oldest first.
        what: the objects, in the source's name.
    """

    period_s = 0.25

    def __init__(self, request: Request, hosts_of: Callable[[list[dict[str, Any]]], Hosts], what: str) -> None:
        self.name = f"kubernetes {what}"
        self._request = request
        self._hosts_of = hosts_of
        self._changed = threading.Condition()
        self._objects: dict[str, dict[str, Any]] = {}
        self._version: str | None = None
        self._error = ""
        self._closed = threading.Event()
        self._response: Any = None
        self._thread: threading.Thread | None = None

    def find(self, timeout_s: float) -> Hosts:
        """Return the hosts as last seen; waits for the first list."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name=self.name, daemon=True)
            self._thread.start()
        with self._changed:
            if not self._changed.wait_for(lambda: self._version is not None or self._error, timeout_s):
                raise SourceError(f"the API server gave no answer within {round(timeout_s, 1):g} s")
            if self._error:
                raise SourceError(self._error)
            objects = list(self._objects.values())
        return self._hosts_of(sorted(objects, key=_age))

    def close(self) -> None:
        """Watch no more."""
        self._closed.set()
        end = getattr(self._response, "shutdown", None)  # `close` would wait for the thread that reads
        if end is not None:
            with contextlib.suppress(Exception):
                end()

    def _follow(self) -> None:
        pause_s = RETRY_S[0]
        while not self._closed.is_set():
            try:
                if self._version is None:
                    self._list()
                self._watch()
                pause_s = RETRY_S[0]
            except Exception as error:  # noqa: BLE001 - the client raises what urllib3, ssl and its plugins raise
                with self._changed:
                    if _status(error) == GONE:
                        self._version = None
                    else:
                        self._error = _words(error)
                        self._changed.notify_all()
                self._closed.wait(pause_s)
                pause_s = min(2 * pause_s, RETRY_S[1])

    def _list(self) -> None:
        whole = json.loads(self._request(None).data)
        with self._changed:
            self._objects = {_key(o): o for o in whole["items"]}
            self._version = whole["metadata"]["resourceVersion"]
            self._error = ""
            self._changed.notify_all()

    def _watch(self) -> None:
        self._response = self._request(self._version)
        with self._changed:
            self._error = ""
        with contextlib.closing(self._response):
            for line in _lines(self._response):
                self._take(json.loads(line))

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, thing = event["type"], event["object"]
        if kind == "ERROR":
            raise WatchError(int(thing.get("code", 0)), str(thing.get("message", "")))
        with self._changed:
            if kind in ("ADDED", "MODIFIED"):
                self._objects[_key(thing)] = thing
            elif kind == "DELETED":
                self._objects.pop(_key(thing), None)
            self._version = thing["metadata"]["resourceVersion"]


class WatchError(Exception):
    """The server ended a watch; `status` as in HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the watch was ended: {status} {message}")
        self.status = status


def of_pods(selector: str, cluster: Cluster, slots: Slots, name_is: str = "ip") -> Kubernetes:
    """Return a source of the pods of a label selector.

    Raises:
        SourceError: when the official client is not installed or finds no cluster.
    """
    client, api = _client(cluster)
    core, space = client.CoreV1Api(api), cluster.space

    def request(version: str | None) -> Any:
        return core.list_namespaced_pod(space, label_selector=selector, **_arguments(version))

    return Kubernetes(request, lambda pods: hosts_of_pods(pods, slots, name_is), f"pods {selector} in {space}")


def of_service(service: str, cluster: Cluster, slots: int) -> Kubernetes:
    """Return a source of a (headless) service's endpoints; raises as `of_pods` does."""
    client, api = _client(cluster)
    slices, space = client.DiscoveryV1Api(api), cluster.space

    def request(version: str | None) -> Any:
        selector = f"kubernetes.io/service-name={service}"
        return slices.list_namespaced_endpoint_slice(space, label_selector=selector, **_arguments(version))

    return Kubernetes(request, lambda found: hosts_of_slices(found, slots), f"service {service} in {space}")


def hosts_of_pods(pods: list[dict[str, Any]], slots: Slots, name_is: str = "ip") -> Hosts:
    """Return the pods that are ready and not about to end.

    Args:
        pods: as the API gives them.
        slots: how many workers each takes.
        name_is: `ip`, or `hostname` for pods with a stable name behind a headless service.
    """
    hosts: list[Host] = []
    left_out: list[LeftOut] = []
    for pod in pods:
        meta, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
        found = _unusable_pod(meta, status) or _pod(meta, spec, status, slots, name_is)
        if isinstance(found, Host):
            hosts.append(found)
        else:
            left_out.append(LeftOut(f"pod {meta['name']}", found))
    return Hosts(tuple(hosts), tuple(left_out))


def _unusable_pod(meta: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    if meta.get("deletionTimestamp"):
        return "it is terminating"
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    disrupted = conditions.get("DisruptionTarget", {})
    if disrupted.get("status") == "True":
        return f"it is about to be taken away: {disrupted.get('reason', 'DisruptionTarget')}"
    if status.get("phase") != "Running":
        return f"its phase is {status.get('phase', 'unknown')}"
    if conditions.get("Ready", {}).get("status") != "True":
        return "it is not ready"
    return ""


def _pod(
    meta: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any], slots: Slots, name_is: str
) -> Host | str:
    if name_is == "hostname" and spec.get("hostname") and spec.get("subdomain"):
        name = f"{spec['hostname']}.{spec['subdomain']}.{meta['namespace']}.svc"
    else:
        name = status.get("podIP", "")
    noted = meta.get("annotations", {}).get(slots.annotation)
    if noted is not None and not noted.isdecimal():
        return f"annotation {slots.annotation} is {noted!r}, expected a whole number"
    limits = [c.get("resources", {}).get("limits", {}).get(slots.resource, 0) for c in spec.get("containers", ())]
    return host(name, int(noted) if noted is not None else sum(map(int, limits)) or slots.default)


def hosts_of_slices(slices: list[dict[str, Any]], slots: int) -> Hosts:
    """Return the endpoints of a service that are ready and not terminating."""
    hosts: list[Host] = []
    left_out: list[LeftOut] = []
    for endpoint in (e for s in slices for e in s.get("endpoints") or ()):
        conditions, name = endpoint.get("conditions", {}), endpoint["addresses"][0]
        if conditions.get("terminating"):
            left_out.append(LeftOut(name, "its endpoint is terminating"))
        elif conditions.get("ready") is False:
            left_out.append(LeftOut(name, "its endpoint is not ready"))
        elif isinstance(found := host(name, slots), Host):
            hosts.append(found)
        else:
            left_out.append(LeftOut(name, found))
    return Hosts(tuple(hosts), tuple(left_out))


def _client(cluster: Cluster) -> tuple[Any, Any]:
    """Return the client's module, and a client of the cluster."""
    try:
        from kubernetes import client, config
    except ImportError:
        raise SourceError("the Kubernetes client is not installed: pip install 'elastic-keras[kubernetes]'") from None
    settings = client.Configuration()
    settings.retries = False  # we try again ourselves, and say so
    try:
        if cluster.kubeconfig is None and cluster.context is None and _ACCOUNT.exists():
            config.load_incluster_config(client_configuration=settings)
        else:
            config.load_kube_config(cluster.kubeconfig, cluster.context, client_configuration=settings)
    except Exception as error:  # noqa: BLE001 - what the client and its plugins raise
        raise SourceError(f"no cluster to ask: {error}") from None
    return client, client.ApiClient(settings)


def _arguments(version: str | None) -> dict[str, Any]:
    if version is None:
        return {"_preload_content": False, "_request_timeout": (CONNECT_S, 30.0)}
    return {
        "watch": True,
        "resource_version": version,
        "allow_watch_bookmarks": True,
        "timeout_seconds": WATCH_S,
        "_preload_content": False,
        "_request_timeout": (CONNECT_S, SILENT_S),
    }


def _own_namespace() -> str:
    try:
        return _ACCOUNT.read_text(encoding="utf-8").strip()
    except OSError:
        return "default"


def _lines(response: Any) -> Iterator[bytes]:
    rest = b""
    for part in response.stream(amt=None):
        *lines, rest = (rest + part).split(b"\n")
        yield from (line for line in lines if line.strip())


def _key(thing: Mapping[str, Any]) -> str:
    meta = thing["metadata"]
    return str(meta.get("uid") or meta["name"])


def _age(thing: Mapping[str, Any]) -> tuple[str, str]:
    meta = thing["metadata"]
    return str(meta.get("creationTimestamp", "")), str(meta["name"])


def _status(error: Exception) -> int:
    return int(getattr(error, "status", 0) or 0)


def _words(error: Exception) -> str:
    status = _status(error)
    reason = getattr(error, "reason", None) or error
    return f"the API server answered {status} {reason}" if status else f"the API server cannot be reached: {reason}"
