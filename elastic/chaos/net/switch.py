"""A switch in user space: one TAP device a host, one process that carries Ethernet frames between them.

    python -m elastic.chaos.net.switch HOST=DEVICE...

Its standard input is a socket of packets, on which it answers requests (see `control`) as soon as the
devices are there; they may then be moved into network namespaces. When the other end of the socket is
closed, it ends, and the devices with it.

What is decided about a frame is in `way`; here is only reading, writing and waiting. A few frames are
read from each device in turn, so that one that sends a lot does not keep the others waiting.
"""

import contextlib
import fcntl
import heapq
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from itertools import count

from elastic.chaos.net.control import PACKET, Ways, no_counts, read_request
from elastic.chaos.net.way import CLEAR, Fate, Line, Way, cross, targets

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
FRAME = 1 << 16
TURN = 64  # frames from one device before the next one's


def make_tap(device: str) -> int:
    """Make a TAP device; return its file descriptor, which does not block.

    Raises:
        OSError: where the kernel allows none.
    """
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
    except OSError:
        os.close(fd)
        raise
    return fd


class Switch:
    """Carries frames between the devices of hosts.

    Args:
        taps: file descriptors by host.
        requests: where requests come in.
    """

    def __init__(self, taps: dict[str, int], requests: socket.socket) -> None:
        self._taps = taps
        self._hosts = tuple(taps)
        self._requests = requests
        self._ways: dict[tuple[str, str], Way] = {}
        self._lines: dict[tuple[str, str], Line] = {}
        self._seen: dict[bytes, str] = {}
        self._under_way: list[tuple[float, int, str, bool, bytes]] = []  # arrives, number, host, is it out, frame
        self._numbers = count()
        self._counts = no_counts(self._hosts)
        self._chance = random.Random(0)  # noqa: S311 - to be repeated, not to be secret

    def run(self) -> None:
        """Carry frames until nobody can ask for anything any more."""
        by_fd = {fd: host for host, fd in self._taps.items()}
        poll = select.epoll()
        for fd in (*by_fd, self._requests.fileno()):
            poll.register(fd, select.EPOLLIN)
        while True:
            ready = poll.poll(self._wait_s(time.monotonic()))
            for fd, _ in ready:
                if fd in by_fd:
                    self._read(by_fd[fd], fd)
                elif not self._answer():
                    return
            self._deliver(time.monotonic())

    def _wait_s(self, now: float) -> float:
        return max(0.0, self._under_way[0][0] - now) if self._under_way else -1.0

    def _read(self, host: str, fd: int) -> None:
        for _ in range(TURN):
            try:
                frame = os.read(fd, FRAME)
            except BlockingIOError:
                return
            except OSError:
                return  # its device is down, or gone with its namespace
            self._go(host, True, frame, time.monotonic())

    def _go(self, host: str, out: bool, frame: bytes, now: float) -> None:
        """Let a frame take one way, and what follows as soon as it is due."""
        key = (host, "out" if out else "into")
        way = self._ways.get(key, CLEAR)
        line = self._lines.get(key)
        if way is not CLEAR or (line is not None and line.last_at > now):
            fate, at, self._lines[key] = cross(way, line or Line(), len(frame), now, self._chance.random())
        else:
            fate, at = Fate.PASSED, now
        self._counts[host][key[1]][fate] += 1
        if fate is not Fate.PASSED:
            return
        if at > now:
            heapq.heappush(self._under_way, (at, next(self._numbers), host, out, frame))
        else:
            self._arrive(host, out, frame, now)

    def _arrive(self, host: str, out: bool, frame: bytes, now: float) -> None:
        """Let a frame that has come out of a host go into others, or hand it to the host it is for."""
        if out:
            for target in targets(frame, host, self._seen, self._hosts):
                self._go(target, False, frame, now)
            return
        try:
            os.write(self._taps[host], frame)
        except OSError:
            return  # the device is down: nobody is there to hear it

    def _deliver(self, now: float) -> None:
        while self._under_way and self._under_way[0][0] <= now:
            _, _, host, out, frame = heapq.heappop(self._under_way)
            self._arrive(host, out, frame, now)

    def _answer(self) -> bool:
        """Do what one request asks for; return False when there will be no more."""
        packet = self._requests.recv(PACKET)
        if not packet:
            return False
        try:
            self._change(read_request(packet, self._hosts))
            self._requests.send(json.dumps({"counts": self._counts}).encode())
        except ValueError as error:
            self._requests.send(json.dumps({"error": str(error)}).encode())
        return True

    def _change(self, changes: dict[str, Ways]) -> None:
        for host, ways in changes.items():
            for name, way in (("out", ways.out), ("into", ways.into)):
                if way is not None:
                    self._ways[host, name] = CLEAR if way == CLEAR else way


def main(words: Sequence[str]) -> None:
    """Make the devices and carry frames."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who has started this ends it
    taps = {host: make_tap(device) for host, _, device in (word.partition("=") for word in words)}
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as requests, contextlib.suppress(ConnectionError):
        Switch(taps, requests).run()


if __name__ == "__main__":
    main(sys.argv[1:])
