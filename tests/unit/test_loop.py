import os
import signal
from collections.abc import Iterator

import pytest

from elastic.agent.loop import Loop


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Pipe:
    """A file that can be made readable."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()

    def fill(self) -> None:
        os.write(self.write, b"x")

    def close(self) -> None:
        os.close(self.read)
        os.close(self.write)


@pytest.fixture
def pipes() -> Iterator[tuple[Pipe, Pipe]]:
    both = Pipe(), Pipe()
    yield both
    for pipe in both:
        pipe.close()


@pytest.fixture
def signals() -> Iterator[None]:
    """Leave this process's signals as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2)}
    wakeup = signal.set_wakeup_fd(-1)
    yield
    signal.set_wakeup_fd(wakeup)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_action_is_called_while_its_file_is_readable(pipes: tuple[Pipe, Pipe]) -> None:
    loop, called = Loop(), []
    loop.watch(pipes[0].read, lambda: called.append(os.read(pipes[0].read, 1)))
    loop.step(0.0)
    assert called == []
    pipes[0].fill()
    loop.step(0.0)
    loop.step(0.0)
    assert called == [b"x"]


def test_a_file_that_is_not_watched_can_be_forgotten(pipes: tuple[Pipe, Pipe]) -> None:
    Loop().unwatch(pipes[0].read)
    Loop().unwatch(-1)


def test_an_action_can_forget_another_that_was_due_with_it(pipes: tuple[Pipe, Pipe]) -> None:
    loop, called = Loop(), []
    for mine, other in (pipes, pipes[::-1]):
        loop.watch(mine.read, lambda mine=mine, other=other: (called.append(mine), loop.unwatch(other.read)))
        mine.fill()
    loop.step(0.0)
    assert len(called) == 1


def test_a_file_that_takes_anothers_number_is_not_taken_for_it(pipes: tuple[Pipe, Pipe]) -> None:
    loop, called = Loop(), []

    def replace(mine: Pipe, other: Pipe) -> None:
        called.append(mine)
        loop.unwatch(other.read)  # as a worker's descriptors are when it ends, and its successor's come in their place
        loop.watch(other.read, lambda: called.append(None))

    for mine, other in (pipes, pipes[::-1]):
        loop.watch(mine.read, lambda mine=mine, other=other: replace(mine, other))
        mine.fill()
    loop.step(0.0)
    assert len(called) == 1


def test_time_calls_again_and_again() -> None:
    clock = Clock()
    loop, called = Loop(clock), []
    loop.every(1.0, lambda: called.append(clock.now))
    for tenths in range(45):
        clock.now = tenths / 10
        loop.step(0.0)
    assert called == [1.0, 2.0, 3.0, 4.0]


def test_the_first_result_counts_and_nothing_is_called_after_it() -> None:
    clock = Clock()
    loop, called = Loop(clock), []
    loop.every(1.0, lambda: loop.end(3))
    loop.every(1.0, lambda: (called.append("late"), loop.end(4)))
    clock.now = 1.0
    assert loop.run() == 3
    assert called == []


def test_a_signal_is_handled_in_the_loop_and_not_where_it_struck(signals: None) -> None:
    loop, called = Loop(), []
    loop.on_signals((signal.SIGTERM,), lambda number: (called.append(number), loop.end(128 + number)))
    signal.raise_signal(signal.SIGTERM)
    assert called == []
    assert loop.run() == 143
    assert called == [signal.SIGTERM]


def test_several_signals_are_all_heard_in_their_order(signals: None) -> None:
    loop, called = Loop(), []
    loop.on_signals((signal.SIGTERM, signal.SIGUSR2), called.append)
    for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGTERM):
        signal.raise_signal(number)
    loop.step(1.0)
    assert called == [signal.SIGUSR2, signal.SIGTERM, signal.SIGTERM]
