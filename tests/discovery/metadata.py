"""Small metadata servers that speak as those of the clouds do."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Metadata:
    """A metadata server: bodies by path; what a cloud demands of its callers, it demands."""

    def __init__(self, cloud: str) -> None:
        self.bodies: dict[str, str] = {}
        self.status = 0
        self.tokens: set[str] = set()
        self.given = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send(*server.get(cloud, self.path, self.headers))

            def do_PUT(self) -> None:
                self.send(*server.put(cloud, self.path, self.headers))

            def send(self, status: int, body: str) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def put(self, cloud: str, path: str, headers: object) -> tuple[int, str]:
        lifetime = headers["X-aws-ec2-metadata-token-ttl-seconds"]  # type: ignore[index]
        if cloud != "ec2" or path != "/latest/api/token" or not 1 <= int(lifetime) <= 21600:
            return 403, ""
        self.given += 1
        self.tokens.add(f"token {self.given}")
        return 200, f"token {self.given}"

    def get(self, cloud: str, path: str, headers: object) -> tuple[int, str]:
        if self.status:
            return self.status, ""
        allowed = {
            "ec2": headers["X-aws-ec2-metadata-token"] in self.tokens,  # type: ignore[index]
            "gce": headers["Metadata-Flavor"] == "Google",  # type: ignore[index]
            "azure": headers["Metadata"] == "true",  # type: ignore[index]
        }
        if not allowed[cloud]:
            return (401 if cloud == "ec2" else 403), ""
        return (200, self.bodies[path]) if path in self.bodies else (404, "")

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
