import copy
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.events import Record
from elastic.views.goodput import goodput, seconds, stretches
from elastic.views.pauses import Phase, pauses
from tests.runs import HEALED, RESTARTED, TRAINING, fact, first_step, formed, progressed

P = Phase


def spent(records: list[Record]) -> dict[Phase, float]:
    return {phase: round(took, 6) for phase, took in seconds(stretches(records)).items() if took}


def test_a_run_with_one_recovery_is_told_apart_to_the_last_moment() -> None:
    assert spent(HEALED) == {
        P.IDLE: 3.0 + 0.05,  # 3.0 until the first workers are up; 10.10 to 10.15 until the standby is
        P.RENDEZVOUS: 0.2 + 0.25,
        P.SYNC: 0.3 + 0.1,
        P.FIRST_STEP: 0.5 + 0.1,
        P.DETECT: 0.1,
        P.CHECKPOINT: 0.25,
        P.USEFUL: 30.0 - 4.0 - 0.6 - 0.25,
    }
    assert goodput(seconds(stretches(HEALED))) == pytest.approx((30.0 - 4.85) / 30.0)


def test_steps_are_redone_until_training_is_where_it_was() -> None:
    found = spent(RESTARTED)
    assert found[P.REDONE] == 1.0  # from step 31 at 16.0 to step 40 at 17.0
    assert found[P.USEFUL] == 2.0 + 3.0
    assert found[P.IDLE] == pytest.approx(3.0 + 9.0)  # nobody was up from 6.0 to 15.0


def test_a_step_is_reached_between_two_facts_where_steps_are_even() -> None:
    records = [*RESTARTED[:-2], progressed(18.0, 51), fact(20.0, "JobFinished", step=90)]
    assert spent(records)[P.REDONE] == pytest.approx(2.0 * 9 / 20)  # 9 of the 20 steps from 16.0 to 18.0


def test_a_second_loss_before_the_first_is_made_up_for_counts_from_the_furthest_step() -> None:
    again = [
        *RESTARTED[:-2],
        progressed(17.0, 35),
        *formed(18.0, 2, 2, 30),
        *first_step(18.0, 2, 31, 1.0, 1.0),
        progressed(20.0, 40, 2),
        fact(24.0, "JobFinished", 2, step=90),
    ]
    assert spent(again)[P.REDONE] == pytest.approx(1.0 + 2.0)
    assert spent(again)[P.USEFUL] == pytest.approx(2.0 + 4.0)


def test_what_nobody_ran_is_no_part_of_the_time() -> None:
    stopped = [*TRAINING, fact(10.0, "JobStopped", 0, -1, reason="told to stop"), fact(500.0, "JobStarted", 0, -1)]
    more = [*stopped, *formed(505.0, 1, 2, 59), *first_step(506.0, 1, 60, 0.0, 0.0), progressed(510.0, 100)]
    assert spent(more)[P.OFF] == 490.0
    assert goodput(seconds(stretches(more))) == pytest.approx((5.9 + 4.0) / 20.0)


def test_a_run_that_failed_was_no_good_since_its_last_progress() -> None:
    failed = [*TRAINING, fact(20.0, "JobFailed", 0, -1, reason="nothing happened for 10 s")]
    assert spent(failed)[P.USEFUL] == pytest.approx(9.9 - 4.0)


def test_a_running_world_is_taken_to_train_until_a_fact_says_otherwise() -> None:
    validating = [*TRAINING, fact(60.0, "StandbyReady", 1, 1, standby_pid=7)]
    assert spent(validating)[P.USEFUL] == 56.0
    broken = [*validating, fact(61.0, "CollectiveFailed", 1, 0, step=60, error="gone")]
    assert spent(broken)[P.USEFUL] == pytest.approx(5.9)


def test_a_run_that_never_trained_was_idle() -> None:
    never = [fact(0.0, "JobStarted", 0, -1), fact(9.0, "JobFailed", 0, -1, reason="no slots")]
    assert spent(never) == {P.IDLE: 9.0}
    assert goodput(seconds(stretches(never))) == 0.0


def test_nothing_comes_to_nothing() -> None:
    assert stretches([]) == ()
    assert goodput(seconds([])) == 0.0
    assert pauses([]) == ()


def test_a_checkpoint_within_a_pause_is_part_of_the_pause() -> None:
    saved = fact(10.55, "CheckpointWritten", 1, step=60, path="p", size_bytes=1, took_s=0.4, blocked_s=0.4)
    records = sorted([*HEALED, saved], key=lambda r: r.time)
    assert spent(records)[P.CHECKPOINT] == 0.25
    assert spent(records)[P.DETECT] == 0.1


EVENTS = [
    *("WorldFormed", "FirstStepDone", "Progressed", "EpochEnded", "CollectiveFailed", "CheckpointWritten"),
    *("JobStarted", "JobFailed", "JobStopped", "JobFinished", "WorkerLost", "WorkerLeft", "HostsChanged"),
    *("AgentStarted", "CheckpointLoaded", "FromTheFuture"),
]
ANY_FACTS = st.lists(
    st.builds(
        fact,
        st.floats(0, 100),
        st.sampled_from(EVENTS),
        st.integers(0, 5),
        st.integers(-1, 3),
        step=st.integers(0, 1000),
        size=st.integers(1, 4),
        pause_s=st.floats(0, 200),
        took_s=st.floats(0, 50),
        blocked_s=st.floats(0, 60),
        root_cause=st.booleans(),
        phases_s=st.fixed_dictionaries({"rendezvous": st.floats(0, 30), "sync": st.floats(0, 30)}),
    ),
    max_size=40,
)


@given(ANY_FACTS)
def test_whatever_happened_each_moment_counts_once(records: list[Record]) -> None:
    records.sort(key=lambda r: r.time)
    before = copy.deepcopy(records)
    found = stretches(records)
    assert records == before
    assert stretches(records) == found
    for one, next_one in pairwise(found):
        assert one.end == next_one.begin
        assert one.begin < one.end
    if found:
        assert found[0].begin == records[0].time
        assert found[-1].end <= records[-1].time
    share = goodput(seconds(found))
    assert 0.0 <= share <= 1.0


def test_a_step_after_the_jobs_end_leaves_no_pause_before_it() -> None:
    late = [fact(0.0, "WorldFormed", 1, 0, step=0, size=1), fact(0.0, "JobFailed", 1, -1)]
    late += [fact(1.0, "FirstStepDone", 1, 0, step=1, pause_s=0.0)]
    assert [(p.begin, p.end) for p in pauses(late)] == [(0.0, 1.0), (1.0, 1.0)]


@given(ANY_FACTS)
def test_whatever_happened_the_phases_of_a_pause_add_up(records: list[Record]) -> None:
    records.sort(key=lambda r: r.time)
    end = 0.0
    for pause in pauses(records):
        assert sum(to - since for _, since, to in pause.phases()) == pytest.approx(pause.took_s)
        assert all(to >= since for _, since, to in pause.phases())
        assert pause.begin >= end
        assert pause.redone >= 0
        end = pause.end


@given(ANY_FACTS, st.floats(100, 200))
def test_time_that_brings_no_progress_lowers_goodput(records: list[Record], later: float) -> None:
    records.sort(key=lambda r: r.time)
    records = [r for r in records if r.event not in {"JobFinished", "JobFailed", "JobStopped"}]
    before = goodput(seconds(stretches([*records, fact(100.0, "JobFailed", 0, -1)])))
    after = goodput(seconds(stretches([*records, fact(later, "JobFailed", 0, -1)])))
    assert after <= before + 1e-9
