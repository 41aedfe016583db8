"""Checkpoints are written when they are due, from a state that training has long left behind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from elastic.config import Checkpoint
from elastic.events import CheckpointFailed, CheckpointWritten, Event
from elastic.progress import Progress
from elastic.worker import saving
from elastic.worker.checkpoint import CheckpointStore, read
from elastic.worker.saving import Saver
from elastic.worker.training_state import HeldState


class State:
    """What a saver needs of a training state."""

    def __init__(self) -> None:
        self.at = Progress()
        self.variable = tf.Variable(np.arange(1000, dtype=np.float32))

    def held(self) -> HeldState:
        return HeldState(self.at, ("w",), [self.variable.read_value()], {"at": self.at})

    def step(self, samples: int = 10) -> None:
        self.at = self.at.after_step(samples)
        self.variable.assign_add(tf.ones(1000))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving.hvd, "size", lambda: 2)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def saver(folder: Path, clock: Clock, facts: list[Event], **options: Any) -> Saver:
    return Saver(CheckpointStore(folder, 100), Checkpoint(**options), facts.append, clock)


def settle(of: Saver) -> None:
    if of._pending is not None:
        of._pending.result()


def steps(facts: list[Event]) -> list[int]:
    return [f.step for f in facts if isinstance(f, CheckpointWritten)]


def test_a_held_state_is_that_of_its_step_whatever_training_does_next() -> None:
    state = State()
    before = state.variable.numpy().copy()
    held = state.held()
    for _ in range(3):
        state.step()
    (copy,) = held.copied(2, {}).arrays
    np.testing.assert_array_equal(copy, before)
    assert not held.values
    state.step()
    np.testing.assert_array_equal(copy, before)


def test_a_copy_takes_the_room_of_an_earlier_one_where_it_fits() -> None:
    state = State()
    (first,) = state.held().copied(2, {}).arrays
    state.step()
    now = state.variable.numpy().copy()
    (second,) = state.held().copied(2, {}, (first,)).arrays
    assert second is first
    np.testing.assert_array_equal(second, now)
    other = np.zeros(first.size + 1, first.dtype)
    (third,) = state.held().copied(2, {}, (other, other)).arrays
    np.testing.assert_array_equal(third, now)
    assert not other.any()


def test_time_makes_a_checkpoint_due(tmp_path: Path, clock: Clock) -> None:
    facts: list[Event] = []
    state, this = State(), saver(tmp_path, clock, facts, every_s=10)
    for second in range(25):
        clock.now = float(second)
        state.step()
        this.after_step(state)
        settle(this)
    assert steps(facts) == [11, 21]


def test_steps_make_a_checkpoint_due(tmp_path: Path, clock: Clock) -> None:
    facts: list[Event] = []
    state, this = State(), saver(tmp_path, clock, facts, every_steps=4)
    for _ in range(10):
        state.step()
        this.after_step(state)
        settle(this)
    assert steps(facts) == [4, 8]


def test_every_second_commit_and_each_epochs_end_is_written(tmp_path: Path, clock: Clock) -> None:
    facts: list[Event] = []
    state, this = State(), saver(tmp_path, clock, facts, every_commits=2)
    for number in range(1, 6):
        state.step()
        if number == 5:
            state.at = state.at.after_epoch()
        this.after_commit(state)
        settle(this)
    assert steps(facts) == [2, 4, 5]


def test_a_commit_puts_off_what_time_would_make_due(tmp_path: Path, clock: Clock) -> None:
    facts: list[Event] = []
    state, this = State(), saver(tmp_path, clock, facts, every_s=10)
    state.step()
    clock.now = 9.0
    this.after_commit(state)
    settle(this)
    clock.now = 18.0
    state.step()
    this.after_step(state)
    settle(this)
    assert steps(facts) == [1]


def test_what_is_written_is_the_step_that_was_held(tmp_path: Path, clock: Clock) -> None:
    facts: list[Event] = []
    state, this = State(), saver(tmp_path, clock, facts)
    state.step()
    expected = state.variable.numpy().copy()
    this.after_commit(state)
    for _ in range(5):
        state.step()
    settle(this)
    found = read(next(tmp_path.glob("step-*")))
    assert found.progress.step == 1
    np.testing.assert_array_equal(found.arrays[0], expected)


def test_a_disk_that_refuses_is_reported_and_the_next_one_is_tried(tmp_path: Path, clock: Clock) -> None:
    facts: list[Event] = []
    (tmp_path / "file").write_text("in the way")
    state, this = State(), saver(tmp_path / "file", clock, facts, every_steps=1)
    for _ in range(2):
        state.step()
        this.after_step(state)
        settle(this)
    assert [type(f) for f in facts] == [CheckpointFailed] * 2


def test_the_time_that_training_stood_still_is_told(tmp_path: Path, clock: Clock) -> None:
    facts: list[Event] = []
    state = State()
    held = state.held

    def slow() -> HeldState:
        clock.now += 0.25
        return held()

    state.held = slow  # type: ignore[method-assign]
    this = saver(tmp_path, clock, facts)
    this.after_commit(state)
    settle(this)
    assert [f.blocked_s for f in facts if isinstance(f, CheckpointWritten)] == [0.25]
