"""A worker that loads no TensorFlow and trains nothing (private to `benchmarks.scale`).

Started by an agent as `python -m benchmarks.scale_worker CHANNEL_FD PULSE_FD AGENT_PID`. It prepares at once,
waits to be told to go, meets the others as Horovod's core does, agrees with them on the world's generation,
waits until a peer hangs up, and meets those that are left, and the newcomer, again. What it has seen of
each world is a line in the file MARKS_VARIABLE names, with times on the monotonic clock. It aborts where
Horovod's core would: when a peer is lost while a world forms.
"""

import json
import os
import select
import socket
import sys
import time

from benchmarks.scale_mesh import Place, Store, World, place_of
from elastic.channel import Channel, Drain, Entered, Entering, Go, Phase, Prepare, Pulse, Ready
from elastic.errors import ExitCode
from elastic.worker.process import belong_to, die_with_parent

MARKS_VARIABLE = "ELASTIC_SCALE_MARKS"
BEAT_S = 0.5
_ENV = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")


class Worker:
    """One process, from its slot's world to the next."""

    def __init__(self, channel: Channel, pulse: Pulse, go: Go, told_at: float) -> None:
        self._channel = channel
        self._pulse = pulse
        self._go = go
        self._marks = os.open(os.environ[MARKS_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._generation = go.generation
        self._lost_at, self._told_at = 0.0, told_at

    def work(self) -> int:
        """Be in one world after the other; return the exit code."""
        ask = self._go.entry == "rejoin"
        while True:
            try:
                world = self._enter(ask)
            except OSError as error:
                print(f"scale worker: {error}", file=sys.stderr, flush=True)
                os.abort()
            code = self._wait(world)
            world.leave()
            if code is not None:
                return code
            ask, self._told_at = True, 0.0

    def _enter(self, ask: bool) -> World:
        go, pulse = self._go, self._pulse
        pulse.enter(Phase.ENTERING)
        self._channel.send(Entering())
        store = Store(go.env["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(go.env["HOROVOD_GLOO_RENDEZVOUS_PORT"]))
        asked_at = time.monotonic()
        place = self._ask(store) if ask else place_of([go.env[f"HOROVOD_{name}"] for name in _ENV])
        placed_at = time.monotonic()
        world = World(store, go.host, place)
        world.meet()
        met_at = time.monotonic()
        pulse.enter(Phase.SYNCING)
        self._generation = world.agree(self._generation) + 1
        self._channel.send(Entered(place.rank, place.size, self._generation))
        world.step()
        done_at = time.monotonic()
        pulse.step_done(self._generation)
        mark = {
            "pid": os.getpid(),
            "host": go.host,
            "rank": place.rank,
            "size": place.size,
            "generation": self._generation,
            "lost": self._lost_at,
            "told": self._told_at,
            "asked": asked_at,
            "placed": placed_at,
            "met": met_at,
            "done": done_at,
            "requests": store.requests,
            "longest_wait_s": world.longest_wait_s,
        }
        os.write(self._marks, json.dumps(mark).encode() + b"\n")
        return world

    def _ask(self, store: Store) -> Place:
        answer = store.call("GET", f"/rank_and_size/{self._go.host}:{self._go.slot}") or b""
        words = answer.split(b",")
        if int(words[0]) < 0:
            raise ConnectionError("the slot has been removed from the job")
        return place_of(words)

    def _wait(self, world: World) -> int | None:
        """Wait for the end of a world: None when a peer is lost, else the code to exit with."""
        poll = select.poll()
        poll.register(self._channel.sock, select.POLLIN)
        for peer in world.peers.values():
            poll.register(peer, select.POLLRDHUP)
        own = self._channel.sock.fileno()
        while True:
            self._pulse.heartbeat()
            for fd, _ in poll.poll(1000 * BEAT_S):
                if fd != own:
                    self._lost_at = time.monotonic()
                    return None
                messages = self._channel.receive()
                if messages is None or any(isinstance(m, Drain) for m in messages):
                    return ExitCode.TERMINATED


def main() -> int:
    """Prepare, wait for a slot, be in its worlds."""
    channel, pulse = Channel(socket.socket(fileno=int(sys.argv[1]))), Pulse(int(sys.argv[2]))
    die_with_parent(int(sys.argv[3]))
    if channel.expect(Prepare) is None:
        return ExitCode.TERMINATED
    pulse.enter(Phase.WAITING)
    channel.send(Ready(0, 0.0))
    go = channel.expect(Go)
    if go is None:
        return ExitCode.TERMINATED
    told_at = time.monotonic()
    belong_to(go.agent_pid)
    return Worker(channel, pulse, go, told_at).work()


if __name__ == "__main__":
    sys.exit(main())
