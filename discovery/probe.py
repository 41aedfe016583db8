"""What a host says of itself when it is asked whether it can take a worker.

Runs on that host, with the Python that would run the worker there, and from standard input: nothing
but Python need be installed to answer. Prints one JSON line. Imports nothing of this package.
"""

import json
import os
import shutil
import socket
import sys
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("elastic-keras", "tensorflow", "keras", "horovod")


def facts(folder: str, resolves: bool = True) -> dict[str, object]:
    """Return versions of packages, free disk space at `folder` in bytes, and what its own name resolves to."""
    found: dict[str, object] = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    while not os.path.isdir(folder):  # noqa: PTH112 - the folder may be made later
        folder = os.path.dirname(folder) or "/"  # noqa: PTH120
    found["disk_free_bytes"] = shutil.disk_usage(folder).free
    if resolves:
        found["hostname"] = socket.gethostname()
        try:
            found["address"] = socket.gethostbyname(socket.gethostname())
        except OSError:
            found["address"] = None
            found["only_6"] = _has_only_6(socket.gethostname())
    return found


def _has_only_6(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None, socket.AF_INET6))
    except OSError:
        return False


if __name__ == "__main__":
    print(json.dumps(facts(sys.argv[1] if len(sys.argv) > 1 else "/tmp")))  # noqa: S108
