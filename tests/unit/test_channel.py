import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from elastic import channel as channel_module
from elastic.channel import (
    AskAhead,
    Beat,
    Channel,
    Drain,
    Entered,
    Entering,
    Failed,
    Finished,
    Go,
    GoOver,
    HostsAnnounced,
    Left,
    Message,
    NextWorldReady,
    Phase,
    Prepare,
    Pulse,
    Ready,
)
from elastic.errors import WorkerError

MESSAGES: list[Message] = [
    Prepare("/jobs/mnist.yaml", {"epochs": 3, "batch": {"global": 64}, "loss": None}, "/runs/1", True, "step"),
    Go({"HOROVOD_RANK": "0"}, "rejoin", "alpha", 1, generation=4, agent_pid=17),
    Drain("SIGTERM"),
    Ready(1 << 30, 2.5, {"/jobs/model.py": 1_700_000_000_123_456_789}),
    Entering(),
    Entered(1, 2, 4),
    AskAhead(4, 2),
    NextWorldReady(4, 2, late=True),
    GoOver(4),
    HostsAnnounced(removed=True),
    Failed("ValueError: bad sample", 'Traceback\n  File "a.py", line 1\nValueError: \u2260 "bad"\n', 12, config=True),
    Finished(),
    Left(whole_job=True),
]


@dataclass
class Ends:
    """Both ends of a channel; `raw` is the other one's socket."""

    agent: Channel
    worker: Channel

    @property
    def raw(self) -> socket.socket:
        return self.worker.sock


@pytest.fixture
def ends() -> Iterator[Ends]:
    agent, theirs = Channel.pair()
    agent.sock.settimeout(5.0)
    theirs.settimeout(5.0)
    both = Ends(agent, Channel(theirs))
    yield both
    both.agent.close()
    both.worker.close()


def line_of(message: Message) -> bytes:
    ours, theirs = Channel.pair()
    with theirs:
        assert ours.send(message)
        ours.close()
        return theirs.recv(1 << 20)


def test_there_is_an_example_of_every_message() -> None:
    ours = {name for name, kind in Message.registry.items() if kind.__module__ == Message.__module__}
    assert {type(m).__name__ for m in MESSAGES} == ours


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_arrives_as_it_was_sent(ends: Ends, message: Message) -> None:
    assert ends.agent.send(message)
    assert ends.worker.receive() == [message]
    assert ends.worker.send(message)
    assert ends.agent.receive() == [message]


def test_messages_that_arrive_together_are_told_apart_in_order(ends: Ends) -> None:
    ends.raw.sendall(b"".join(map(line_of, MESSAGES)))
    assert ends.agent.receive() == MESSAGES


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_that_arrives_in_pieces_is_put_together(ends: Ends, message: Message) -> None:
    line = line_of(message)
    for cut in (1, len(line) // 2, len(line) - 1):
        ends.raw.sendall(line[:cut])
        assert ends.agent.receive() == []
        ends.raw.sendall(line[cut:] + line)
        assert ends.agent.receive() == [message, message]


def test_what_a_newer_worker_adds_to_a_message_is_skipped(ends: Ends) -> None:
    ends.raw.sendall(b'{"tag": "Entered", "rank": 1, "size": 2, "generation": 4, "mood": "good"}\n')
    assert ends.agent.receive() == [Entered(1, 2, 4)]


def test_nothing_to_read_is_no_end(ends: Ends) -> None:
    ends.agent.sock.setblocking(False)
    assert ends.agent.receive() == []


def test_the_end_of_the_stream_means_that_the_other_side_is_gone(ends: Ends) -> None:
    ends.worker.send(Finished())
    ends.worker.close()
    assert ends.agent.receive() == [Finished()]
    assert ends.agent.receive() is None
    assert ends.agent.receive() is None


def test_a_torn_last_message_is_dropped_with_its_sender(ends: Ends) -> None:
    ends.raw.sendall(line_of(Drain("SIGTERM"))[:-5])
    ends.worker.close()
    assert ends.agent.receive() == []
    assert ends.agent.receive() is None


def test_sending_to_somebody_who_is_gone_is_no_error(ends: Ends) -> None:
    ends.worker.close()
    assert not ends.agent.send(Drain("SIGTERM"))


def test_a_closed_channel_neither_sends_nor_receives(ends: Ends) -> None:
    ends.agent.close()
    assert not ends.agent.send(Drain("SIGTERM"))
    assert ends.agent.receive() is None


def test_an_expected_message_is_returned_and_what_followed_is_kept(ends: Ends) -> None:
    ends.raw.sendall(line_of(MESSAGES[0]) + line_of(MESSAGES[1]) + line_of(MESSAGES[2]))
    assert ends.agent.expect(Prepare) == MESSAGES[0]
    assert ends.agent.expect(Go) == MESSAGES[1]
    assert ends.agent.receive() == [MESSAGES[2]]


def test_an_expected_message_may_come_in_pieces(ends: Ends) -> None:
    line = line_of(MESSAGES[1])
    pieces = Pieces(iter([line[:10], line[10:20], line[20:]]))
    assert Channel(pieces).expect(Go) == MESSAGES[1]  # type: ignore[arg-type]


class Pieces:
    """A socket that returns one piece at a time."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def recv(self, size: int) -> bytes:
        return next(self._pieces)


def test_another_message_than_the_expected_one_is_an_error_that_names_both(ends: Ends) -> None:
    ends.worker.send(Drain("SIGTERM"))
    with pytest.raises(WorkerError, match="found the message Drain, expected Go"):
        ends.agent.expect(Go)


def test_expecting_from_somebody_who_is_gone_returns_nothing(ends: Ends) -> None:
    ends.worker.close()
    assert ends.agent.expect(Go) is None


class Clock:
    """Stands for the `time` module in the pulse."""

    def __init__(self) -> None:
        self.ns = 16

    def monotonic_ns(self) -> int:
        return self.ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(channel_module, "time", clock)
    return clock


@dataclass
class Pulses:
    """One page in two mappings."""

    worker: Pulse
    agent: Pulse


@pytest.fixture
def pulses() -> Iterator[Pulses]:
    worker = Pulse.create()
    agent = Pulse(os.dup(worker.fd))
    yield Pulses(worker, agent)
    worker.close()
    agent.close()


def test_a_new_pulse_is_of_a_process_that_starts_now(clock: Clock, pulses: Pulses) -> None:
    assert pulses.agent.read() == Beat(16e-9, Phase.STARTING, 16e-9, step=0, in_collective=False)


def test_each_field_is_seen_through_the_other_mapping(clock: Clock, pulses: Pulses) -> None:
    clock.ns = 1_000_000_000 & ~0xF
    pulses.worker.heartbeat()
    clock.ns = 2_000_000_000 & ~0xF
    pulses.worker.enter(Phase.SAVING)
    pulses.worker.collective(True)
    seen = pulses.agent.read()
    assert (seen.phase, seen.step, seen.in_collective) == (Phase.SAVING, 0, True)
    assert (seen.heartbeat, seen.since) == pytest.approx((1.0, 2.0))
    pulses.worker.collective(False)
    assert not pulses.agent.read().in_collective


def test_a_completed_step_is_followed_by_the_users_code(clock: Clock, pulses: Pulses) -> None:
    pulses.worker.enter(Phase.STEPPING)
    clock.ns = 3_000_000_000 & ~0xF
    pulses.worker.step_done(1 << 40)
    seen = pulses.agent.read()
    assert (seen.step, seen.phase) == (1 << 40, Phase.USER)
    assert seen.since == pytest.approx(3.0)


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_fits_into_the_word_it_shares(clock: Clock, pulses: Pulses, phase: Phase) -> None:
    clock.ns = (1 << 62) - 1
    pulses.worker.enter(phase)
    assert pulses.agent.read().phase is phase


# A worker whose clock makes both halves of the word change with each phase: tick k stands in either.
HAMMER = """
import itertools, sys
from elastic import channel

class Clock:
    ns = 16
    def monotonic_ns(self):
        return self.ns

channel.time = clock = Clock()
pulse = channel.Pulse(int(sys.argv[1]))
for k in itertools.cycle(range(1, 1 << 14)):
    clock.ns = k << 32 | k << 4
    pulse.enter(channel.Phase(k % 10))
"""


def test_a_reader_never_sees_half_of_a_change(pulses: Pulses) -> None:
    pulses.worker.enter(Phase.STARTING)
    first = pulses.agent.read()
    command = [sys.executable, "-c", HAMMER, str(pulses.worker.fd)]
    with subprocess.Popen(command, pass_fds=[pulses.worker.fd]) as hammer:
        try:
            while pulses.agent.read().since == first.since:
                assert hammer.poll() is None
            seen = set()
            for _ in range(20_000):
                beat = pulses.agent.read()
                since = round(beat.since * 1e9)
                k = since >> 32
                assert (since & 0xFFFFFFFF) >> 4 == k
                assert beat.phase == k % 10
                seen.add(k)
        finally:
            hammer.kill()
    assert len(seen) > 1
