"""A server on this machine that speaks S3 (moto's)."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

_SERVER = """
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
input()
"""


@contextlib.contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Serve an empty S3 meanwhile; yields the environment by which its clients find it."""
    line = [sys.executable, "-c", _SERVER]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        host, port = server.stdout.readline().split()
        yield {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        server.communicate("\n")
