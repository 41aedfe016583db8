import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.agent.hang import RECENT, SLOW_STEPS, Hung, Limits, StepTimes, verdict
from elastic.channel import Beat, Phase

LIMITS = Limits(heartbeat_s=5.0, progress_s=60.0, start_s=100.0, compile_s=200.0, validation_s=300.0, saving_s=400.0)
NOW = 10_000.0
RUNNING = [p for p in Phase if p not in (Phase.STARTING, Phase.WAITING)]


def judge(
    phase: Phase, for_s: float, *, silent_s: float = 0.0, in_collective: bool = False, median_s: float = 0.0
) -> Hung | None:
    beat = Beat(NOW - silent_s, phase, NOW - for_s, step=7, in_collective=in_collective)
    return verdict(beat, NOW, LIMITS, median_s)


@pytest.mark.parametrize("phase", list(Phase))
def test_a_lively_worker_is_let_be(phase: Phase) -> None:
    assert judge(phase, 1.0, silent_s=0.5) is None


@pytest.mark.parametrize("in_collective", [False, True])
@pytest.mark.parametrize("phase", RUNNING)
def test_a_worker_that_runs_no_python_is_frozen(phase: Phase, in_collective: bool) -> None:
    assert judge(phase, 1.0, silent_s=4.9, in_collective=in_collective) is None
    found = judge(phase, 1.0, silent_s=5.1, in_collective=in_collective)
    assert found == Hung(f"no heartbeat for 5.1 s while {phase.name.lower()}", frozen=True)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.WAITING])
def test_imports_may_hold_the_interpreter_for_longer(phase: Phase) -> None:
    assert judge(phase, 1.0, silent_s=99.0) is None
    found = judge(phase, 1.0, silent_s=101.0)
    assert found is not None
    assert found.frozen


@pytest.mark.parametrize(
    ("phase", "limit_s"),
    [
        (Phase.STARTING, LIMITS.start_s),
        (Phase.COMPILING, LIMITS.compile_s),
        (Phase.STEPPING, LIMITS.progress_s),
        (Phase.USER, LIMITS.progress_s),
        (Phase.VALIDATING, LIMITS.validation_s),
        (Phase.SAVING, LIMITS.saving_s),
        (Phase.ENDING, LIMITS.progress_s),
    ],
)
def test_a_worker_that_runs_python_but_stands_still_is_hung_after_its_phases_limit(
    phase: Phase, limit_s: float
) -> None:
    assert judge(phase, limit_s - 0.1) is None
    found = judge(phase, limit_s + 0.1)
    assert found == Hung(f"no progress for {limit_s + 0.1:.1f} s while {phase.name.lower()}", frozen=False)


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.ENTERING, Phase.SYNCING])
def test_who_waits_for_others_is_never_at_fault(phase: Phase) -> None:
    assert judge(phase, 9_000.0) is None


def test_who_waits_in_a_steps_collective_is_never_at_fault() -> None:
    assert judge(Phase.STEPPING, 9_000.0, in_collective=True) is None


def test_who_waits_in_the_first_steps_collective_is_never_at_fault() -> None:
    assert judge(Phase.COMPILING, 9_000.0, in_collective=True) is None


def test_a_stale_word_about_a_collective_does_not_excuse_the_users_code() -> None:
    assert judge(Phase.USER, LIMITS.progress_s + 1.0, in_collective=True) is not None


@pytest.mark.parametrize("phase", [Phase.STEPPING, Phase.USER, Phase.ENDING])
def test_slow_steps_are_measured_by_their_own_pace(phase: Phase) -> None:
    slow_s = 30.0
    assert judge(phase, SLOW_STEPS * slow_s - 1.0, median_s=slow_s) is None
    assert judge(phase, SLOW_STEPS * slow_s + 1.0, median_s=slow_s) is not None


def test_fast_steps_do_not_shorten_the_limit() -> None:
    assert judge(Phase.STEPPING, LIMITS.progress_s - 1.0, median_s=0.001) is None


@given(
    st.sampled_from(list(Phase)),
    st.floats(0.0, 1000.0),
    st.floats(0.0, 1000.0),
    st.floats(0.0, 100.0),
    st.floats(0.0, 100.0),
    st.booleans(),
)
def test_who_is_hung_stays_hung_while_nothing_changes(
    phase: Phase, for_s: float, silent_s: float, median_s: float, later_s: float, in_collective: bool
) -> None:
    if judge(phase, for_s, silent_s=silent_s, median_s=median_s, in_collective=in_collective) is not None:
        later = (for_s + later_s, silent_s + later_s)
        assert judge(phase, later[0], silent_s=later[1], median_s=median_s, in_collective=in_collective) is not None


def looked(*readings: tuple[int, float]) -> StepTimes:
    times = StepTimes()
    for step, now in readings:
        times.look(step, now)
    return times


@pytest.mark.parametrize(
    ("readings", "median_s"),
    [
        pytest.param([], 0.0, id="unknown before the first look"),
        pytest.param([(0, 0.0), (0, 1.0)], 0.0, id="unknown before the first step"),
        pytest.param([(0, 0.0), (1, 2.0)], 2.0, id="one step"),
        pytest.param([(0, 0.0), (4, 2.0)], 0.5, id="several steps between two looks share the time"),
        pytest.param([(0, 0.0), (1, 1.0), (1, 1.5), (2, 3.0)], 1.5, id="looks without a step in between"),
        pytest.param([(5, 0.0), (6, 1.0), (2, 9.0), (3, 10.0)], 1.0, id="a counter that went back starts anew"),
        pytest.param([(0, 0.0), (1, 1.0), (2, 2.0), (3, 50.0)], 1.0, id="one slow step moves no median"),
    ],
)
def test_step_times_are_told_from_occasional_looks(readings: list[tuple[int, float]], median_s: float) -> None:
    assert looked(*readings).median_s == pytest.approx(median_s)


def test_step_times_forget_what_is_long_past() -> None:
    slow = [(step, 100.0 * step) for step in range(RECENT)]
    began = slow[-1][1]
    fast = [(RECENT + step, began + 1.0 * (step + 1)) for step in range(RECENT)]
    assert looked(*slow, *fast).median_s == pytest.approx(1.0)
