"""Take a warm standby from the agent that keeps the host's pool."""

import json
import os
import socket
from dataclasses import dataclass
from typing import Any

from elastic.agent.meeting import Meeting, is_ours
from elastic.agent.process import WorkerProcess, adopt

CLAIM_TIMEOUT_S = 0.5
FDS = 5
UNKNOWN_EXIT = 1
CLAIM, COUNT = b"claim", b"count"


@dataclass(frozen=True, slots=True)
class Claimed:
    """A standby that is this agent's worker from here on, and the job it was prepared for."""

    worker: WorkerProcess
    assignment: dict[str, Any]


def claim(meeting: Meeting) -> Claimed | None:
    """Return a ready standby, or None when the pool has none (or there is no pool)."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(CLAIM_TIMEOUT_S)
    try:
        connection.connect(str(meeting.socket))
        if not is_ours(connection):
            connection.close()
            return None
        connection.send(CLAIM)
        data, fds, _, _ = socket.recv_fds(connection, 1 << 20, FDS)
    except OSError:
        connection.close()
        return None
    if not data or len(fds) != FDS:
        for fd in fds:
            os.close(fd)
        connection.close()
        return None
    answer = json.loads(data)
    return Claimed(adopt(answer["pid"], fds, lambda: _exit_code(connection)), answer["assignment"])


def count(meeting: Meeting) -> int:
    """Return how many standbys of the pool are ready, none of which is taken; 0 when there is no pool."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(CLAIM_TIMEOUT_S)
        try:
            connection.connect(str(meeting.socket))
            if not is_ours(connection):
                return 0
            connection.send(COUNT)
            return int(connection.recv(64) or 0)
        except OSError:
            return 0


def _exit_code(connection: socket.socket) -> int:
    """Ask the keeper, whose child the process was, how it ended."""
    try:
        data = connection.recv(64)
    except OSError:
        data = b""
    finally:
        connection.close()
    return int(data) if data else UNKNOWN_EXIT
