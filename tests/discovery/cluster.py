"""A small Kubernetes API server: lists and watches of pods and endpoint slices, on the real paths.

It keeps what a client depends on: resource versions that grow with each change, watches that go on
from one, bookmarks, and 410 Gone for a version that it has forgotten.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PODS = "/api/v1/namespaces/train/pods"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/train/endpointslices"
KINDS = {PODS: "PodList", SLICES: "EndpointSliceList"}


class ApiServer:
    """Objects by path and name; every change is an event with a version of its own."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.oldest = 0
        self.objects: dict[str, dict[str, dict[str, Any]]] = {PODS: {}, SLICES: {}}
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.requests: list[str] = []
        self.refuse = 0
        self.hanging = threading.Event()
        self.drops = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def kubeconfig(self, folder: Path) -> str:
        """Write what `kubectl` would use to come here; return its path."""
        path = folder / "kubeconfig"
        cluster = {"name": "here", "cluster": {"server": self.url}}
        context = {"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "train"}}
        users = [{"name": "me", "user": {"token": "secret"}}]
        whole = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context]}
        path.write_text(json.dumps(whole | {"users": users, "current-context": "here"}))
        return str(path)

    def put(self, path: str, thing: dict[str, Any]) -> None:
        """Make or change an object."""
        with self.changed:
            self.version += 1
            name = thing["metadata"]["name"]
            thing["metadata"]["resourceVersion"] = str(self.version)
            kind = "MODIFIED" if name in self.objects[path] else "ADDED"
            self.objects[path][name] = thing
            self.events.append((self.version, path, {"type": kind, "object": thing}))
            self.changed.notify_all()

    def delete(self, path: str, name: str) -> None:
        with self.changed:
            self.version += 1
            thing = self.objects[path].pop(name)
            thing["metadata"]["resourceVersion"] = str(self.version)
            self.events.append((self.version, path, {"type": "DELETED", "object": thing}))
            self.changed.notify_all()

    def bookmark(self, path: str) -> None:
        """Tell watchers of a version at which nothing of theirs has changed."""
        with self.changed:
            self.version += 1
            thing = {"metadata": {"resourceVersion": str(self.version)}}
            self.events.append((self.version, path, {"type": "BOOKMARK", "object": thing}))
            self.changed.notify_all()

    def forget(self) -> None:
        """Forget all events so far, as a server does after some minutes."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.events.clear()

    def drop_watches(self) -> None:
        """Break the connections of all watches."""
        with self.changed:
            self.drops += 1
            self.changed.notify_all()

    def watches(self) -> list[str]:
        """Return the versions from which watches were begun."""
        queries = [parse_qs(urlsplit(r).query) for r in self.requests]
        return [q["resourceVersion"][0] for q in queries if "watch" in q]

    def lists(self) -> int:
        return sum("watch" not in parse_qs(urlsplit(r).query) for r in self.requests)

    def close(self) -> None:
        self.hanging.clear()
        self.drop_watches()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        where = urlsplit(handler.path)
        query = {key: values[0] for key, values in parse_qs(where.query).items()}
        self.requests.append(handler.path)
        while self.hanging.is_set():
            threading.Event().wait(0.02)
        if handler.headers["Authorization"] != "Bearer secret":
            self._send(handler, 401, {"kind": "Status", "code": 401, "message": "Unauthorized"})
        elif self.refuse:
            self._send(handler, self.refuse, {"kind": "Status", "code": self.refuse, "message": "refused"})
        elif where.path not in self.objects:
            self._send(handler, 404, {"kind": "Status", "code": 404, "message": "not found"})
        elif query.get("watch") in ("true", "True"):
            self._watch(handler, where.path, query)
        else:
            with self.changed:
                items = [o for o in self.objects[where.path].values() if _fits(o, query)]
                whole = {"kind": KINDS[where.path], "metadata": {"resourceVersion": str(self.version)}, "items": items}
                body = json.dumps(whole)
            self._send(handler, 200, body)

    def _watch(self, handler: BaseHTTPRequestHandler, path: str, query: dict[str, str]) -> None:
        seen, drops = int(query["resourceVersion"]), self.drops
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        if seen < self.oldest:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            _chunk(handler, {"type": "ERROR", "object": gone})
            handler.wfile.write(b"0\r\n\r\n")
            return
        while self.drops == drops:
            with self.changed:
                self.changed.wait(0.05)
                new = [(v, e) for v, p, e in self.events if v > seen and p == path]
                lines = [(v, json.loads(json.dumps(e))) for v, e in new]
            for version, event in lines:
                seen = version
                if event["type"] == "BOOKMARK" or _fits(event["object"], query):
                    _chunk(handler, event)
        handler.close_connection = True
        handler.connection.shutdown(2)

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, status: int, body: object) -> None:
        text = (body if isinstance(body, str) else json.dumps(body)).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)


def _chunk(handler: BaseHTTPRequestHandler, event: object) -> None:
    line = json.dumps(event).encode() + b"\n"
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
    handler.wfile.flush()


def _fits(thing: dict[str, Any], query: dict[str, str]) -> bool:
    wanted = dict(pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if pair)
    return wanted.items() <= thing["metadata"].get("labels", {}).items()


def pod(name: str, ip: str, *, slots: int = 1, ready: bool = True, **metadata: Any) -> dict[str, Any]:
    """Return a pod as the API gives it; `slots` GPUs."""
    return {
        "metadata": {
            "name": name,
            "namespace": "train",
            "uid": f"uid of {name}",
            "labels": {"app": "worker"},
            "creationTimestamp": f"2026-01-01T00:00:{int(name.rpartition('-')[2]):02}Z",
            **metadata,
        },
        "spec": {
            "hostname": name,
            "subdomain": "workers",
            "containers": [{"name": "worker", "resources": {"limits": {"nvidia.com/gpu": str(slots)}}}],
        },
        "status": {
            "phase": "Running",
            "podIP": ip,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def endpoints(name: str, *found: tuple[str, bool, bool]) -> dict[str, Any]:
    """Return a slice of endpoints: address, ready, terminating."""
    return {
        "metadata": {"name": name, "uid": f"uid of {name}", "labels": {"kubernetes.io/service-name": "workers"}},
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [a], "conditions": {"ready": ready, "terminating": terminating}}
            for a, ready, terminating in found
        ],
    }
