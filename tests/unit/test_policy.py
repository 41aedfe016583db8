import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.agent.policy import (
    LAUNCHER_GRACE_S,
    Budget,
    Cause,
    EndSlot,
    Restart,
    WorkerExit,
    after_exit,
    cause_of,
    words_for,
)
from elastic.errors import ExitCode

AMPLE = Budget(limit=5, window_s=60.0, ends=(0.0,))
SPENT = Budget(limit=1, window_s=60.0, ends=(1.0, 2.0))

# One end of each cause.
ENDS = {
    Cause.GOAL: WorkerExit(0, finished=True),
    Cause.PREEMPTED: WorkerExit(ExitCode.TERMINATED, left=True),
    Cause.REMOVED: WorkerExit(-signal.SIGABRT, removed=True),
    Cause.CONFIG: WorkerExit(2, config=True, failed=True, failure="ConfigError: batch.global: found 0"),
    Cause.USER_CODE: WorkerExit(1, failed=True, failure="ValueError: bad sample"),
    Cause.CRASH: WorkerExit(-signal.SIGSEGV),
    Cause.HANG: WorkerExit(-signal.SIGKILL, hung="no progress for 61.0 s while user"),
    Cause.REENTRY: WorkerExit(-signal.SIGABRT, entering=True),
}
# Those that a restart in the slot may cure.
RESTARTED = [Cause.PREEMPTED, Cause.USER_CODE, Cause.CRASH, Cause.HANG, Cause.REENTRY]

EXITS = st.builds(
    WorkerExit,
    code=st.integers(-64, 255),
    finished=st.booleans(),
    left=st.booleans(),
    whole_job=st.booleans(),
    config=st.booleans(),
    failed=st.booleans(),
    removed=st.booleans(),
    entering=st.booleans(),
    hung=st.none() | st.just("no heartbeat for 9.0 s while stepping"),
    failure=st.sampled_from(["", "ValueError: bad sample"]),
    same_failure=st.booleans(),
)


def test_every_cause_has_an_end_that_stands_for_it() -> None:
    assert {cause: cause_of(end) for cause, end in ENDS.items()} == {cause: cause for cause in Cause}


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        pytest.param(WorkerExit(-9, finished=True), Cause.GOAL, id="finished, then killed"),
        pytest.param(WorkerExit(0, finished=True, left=True, failed=True), Cause.GOAL, id="finished counts most"),
        pytest.param(WorkerExit(0), Cause.CRASH, id="exit 0 without a word is no goal"),
        pytest.param(WorkerExit(-9, left=True), Cause.PREEMPTED, id="left, then killed by whoever told it to"),
        pytest.param(WorkerExit(-9, left=True, hung="x"), Cause.PREEMPTED, id="left, though it seemed to hang"),
        pytest.param(WorkerExit(1, failed=True, hung="x"), Cause.USER_CODE, id="an exception while it seemed to hang"),
        pytest.param(WorkerExit(-6, failed=True, entering=True), Cause.USER_CODE, id="an exception while entering"),
        pytest.param(WorkerExit(-9, hung="x", removed=True), Cause.HANG, id="hung in a slot that is gone"),
        pytest.param(WorkerExit(-6, removed=True, entering=True), Cause.REMOVED, id="the abort of a removed slot"),
        pytest.param(WorkerExit(134, entering=True), Cause.REENTRY, id="an abort seen through a shell"),
        pytest.param(WorkerExit(-11, entering=True), Cause.CRASH, id="entering, but no abort"),
        pytest.param(WorkerExit(-6), Cause.CRASH, id="an abort in a world"),
        pytest.param(WorkerExit(-9), Cause.CRASH, id="killed"),
        pytest.param(WorkerExit(3), Cause.CRASH, id="an unexplained code"),
    ],
)
def test_what_the_worker_said_counts_more_than_how_it_ended(end: WorkerExit, cause: Cause) -> None:
    assert cause_of(end) is cause


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (WorkerExit(-9), "killed by SIGKILL"),
        (WorkerExit(-6, entering=True), "killed by SIGABRT"),
        (WorkerExit(-99), "killed by signal 99"),
        (WorkerExit(0), "exit code 0"),
        (WorkerExit(137), "exit code 137"),
        (WorkerExit(1, failed=True, failure="ValueError: bad sample"), "ValueError: bad sample"),
        (WorkerExit(-9, hung="no heartbeat for 6.0 s while user"), "no heartbeat for 6.0 s while user"),
    ],
)
def test_an_end_is_told_in_plain_words(end: WorkerExit, words: str) -> None:
    assert words_for(end) == words


@pytest.mark.parametrize(
    ("limit", "times", "spent"),
    [
        pytest.param(0, [1.0], True, id="none allowed"),
        pytest.param(2, [1.0, 2.0], False, id="as many as allowed"),
        pytest.param(2, [1.0, 2.0, 3.0], True, id="one more"),
        pytest.param(2, [1.0, 2.0, 11.0], False, id="the first is forgiven at the window's end"),
        pytest.param(2, [1.0, 2.0, 10.9], True, id="and not before"),
        pytest.param(1, [0.0, 20.0, 40.0, 60.0], False, id="a healthy stretch between any two"),
        pytest.param(1, [0.0, 20.0, 21.0], True, id="a healthy stretch does not save up"),
    ],
)
def test_a_budget_counts_the_ends_within_its_window(limit: int, times: list[float], spent: bool) -> None:
    budget = Budget(limit, window_s=10.0)
    for time in times:
        budget = budget.after(time)
    assert budget.spent is spent


def test_an_unused_budget_is_not_spent() -> None:
    assert not Budget(0, 10.0).spent


def test_one_more_end_leaves_the_old_budget_as_it_was() -> None:
    before = Budget(1, 10.0, (1.0,))
    assert before.after(2.0).ends == (1.0, 2.0)
    assert before.ends == (1.0,)


@given(st.integers(0, 5), st.lists(st.floats(0.0, 100.0), min_size=1, max_size=30))
def test_a_budget_is_spent_just_when_too_many_ends_lie_within_a_window(limit: int, times: list[float]) -> None:
    budget = Budget(limit, window_s=10.0)
    for time in sorted(times):
        budget = budget.after(time)
    last = max(times)
    assert budget.spent == (sum(last - time < 10.0 for time in times) > limit)


@pytest.mark.parametrize("cause", RESTARTED)
def test_what_a_restart_may_cure_is_restarted_in_its_slot(cause: Cause) -> None:
    decision = after_exit(ENDS[cause], AMPLE, None)
    assert isinstance(decision, Restart)
    assert decision.reason == words_for(ENDS[cause])


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (Cause.GOAL, EndSlot(ExitCode.GOAL_REACHED, "the goal is reached", alarm=False)),
        (Cause.REMOVED, EndSlot(ExitCode.SLOT_LOST, "discovery took the slot away", alarm=False)),
        (Cause.CONFIG, EndSlot(ExitCode.CONFIG, "ConfigError: batch.global: found 0", alarm=True, bug=True)),
    ],
)
def test_what_no_restart_cures_ends_the_slot(cause: Cause, expected: EndSlot) -> None:
    assert after_exit(ENDS[cause], AMPLE, None) == expected


@pytest.mark.parametrize("cause", RESTARTED)
def test_a_spent_budget_ends_the_slot_and_says_why(cause: Cause) -> None:
    decision = after_exit(ENDS[cause], SPENT, None)
    assert decision == EndSlot(
        ExitCode.FAILED, f"2 ends by {cause} within 60 s, last: {words_for(ENDS[cause])}", alarm=True
    )


@pytest.mark.parametrize("cause", [Cause.GOAL, Cause.REMOVED, Cause.CONFIG])
def test_an_end_that_is_not_restarted_needs_no_budget(cause: Cause) -> None:
    assert after_exit(ENDS[cause], SPENT, None) == after_exit(ENDS[cause], AMPLE, None)


def test_a_preempted_worker_is_restarted_only_after_its_launcher_had_time_to_end_the_agent_too() -> None:
    assert after_exit(ENDS[Cause.PREEMPTED], AMPLE, None) == Restart("exit code 143", delay_s=LAUNCHER_GRACE_S)
    delays = {after_exit(ENDS[c], AMPLE, None).delay_s for c in RESTARTED if c is not Cause.PREEMPTED}  # type: ignore[union-attr]
    assert delays == {0.0}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.GOAL])
def test_an_agent_that_was_told_to_stop_restarts_nothing_and_is_quiet(cause: Cause, number: int) -> None:
    decision = after_exit(ENDS[cause], SPENT, number)
    assert decision == EndSlot(128 + number, "told to stop", alarm=False)


def test_a_worker_that_left_with_everybody_ends_the_slot_quietly() -> None:
    end = WorkerExit(ExitCode.TERMINATED, left=True, whole_job=True)
    assert after_exit(end, AMPLE, None) == EndSlot(
        ExitCode.TERMINATED, "the whole job was told to stop", alarm=False, whole_job=True
    )


def test_the_same_failure_twice_is_a_bug_however_much_budget_is_left() -> None:
    end = WorkerExit(1, failed=True, failure="ValueError: bad sample", same_failure=True)
    assert after_exit(end, AMPLE, None) == EndSlot(
        ExitCode.FAILED, "the same error twice on the first step: ValueError: bad sample", alarm=True, bug=True
    )


@given(EXITS, st.sampled_from([AMPLE, SPENT]), st.sampled_from([None, signal.SIGTERM, signal.SIGINT]))
def test_the_exit_code_is_0_just_when_the_goal_is_reached(end: WorkerExit, budget: Budget, number: int | None) -> None:
    decision = after_exit(end, budget, number)
    assert (isinstance(decision, EndSlot) and decision.code == 0) == end.finished


@given(EXITS, st.sampled_from([None, signal.SIGTERM]))
def test_only_what_nobody_asked_for_raises_an_alarm(end: WorkerExit, number: int | None) -> None:
    decision = after_exit(end, SPENT, number)
    assert isinstance(decision, EndSlot)
    wanted = end.finished or number is not None or cause_of(end) is Cause.REMOVED
    if wanted:
        assert not decision.alarm
