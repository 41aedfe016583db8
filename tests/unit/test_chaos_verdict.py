from typing import Any

import pytest

from elastic.chaos.kinds import Kind
from elastic.chaos.outcome import End, Report
from elastic.chaos.plan import Plan, Planned, schedule
from elastic.chaos.verdict import Outcome, Verdict, judge
from elastic.deeds import MESSAGE
from elastic.events import Record

SETTLE_S = 60.0


def planned(*faults: dict[str, Any]) -> tuple[Planned, ...]:
    return schedule(Plan.model_validate({"faults": list(faults)}), seed=1)


def fact(
    time: float, event: str, slot: int = -1, pid: int = 1, generation: int = 1, rank: int = -1, **own: Any
) -> Record:
    return Record(time, event, "h", slot, pid, rank, generation, own)


def world(time: float, generation: int, *pids: int, step: int = 0, stepped_at: float | None = None) -> list[Record]:
    """A world forms; its members do their first step."""
    at = stepped_at if stepped_at is not None else time
    size = len(pids)
    told = [fact(time, "WorldFormed", r, pid, generation, r, size=size, step=step) for r, pid in enumerate(pids)]
    return told + [fact(at, "FirstStepDone", r, pid, generation, r, step=step + 1) for r, pid in enumerate(pids)]


def injected(time: float, number: int = 1, kind: str = "kill", slot: int = 1, pid: int = 101, step: int = 50) -> Record:
    return fact(
        time,
        "FaultInjected",
        fault=number,
        kind=kind,
        target="rank 1",
        pids=[pid],
        places=[f"h[{slot}]"],
        at_step=step,
        slots=2,
    )


def lost(
    time: float, slot: int = 1, cause: str = "crash", summary: str = "killed by SIGKILL", root: bool = True
) -> Record:
    return fact(
        time, "WorkerLost", slot, 10 + slot, worker_pid=100 + slot, cause=cause, summary=summary, root_cause=root
    )


BEGUN = [
    fact(0.0, "JobStarted", restarts=0),
    fact(0.1, "AgentStarted", 0, pid=10),
    fact(0.1, "AgentStarted", 1, pid=11),
    fact(0.2, "WorkerStarted", 0, 10, worker_pid=100),
    fact(0.2, "WorkerStarted", 1, 11, worker_pid=101),
    *world(5.0, 1, 100, 101),
    fact(9.0, "Progressed", 0, 100, rank=0, step=50),
]
REPLACED = [fact(10.2, "WorkerStarted", 1, 11, worker_pid=200), *world(10.6, 2, 100, 200, step=50, stepped_at=11.0)]
KILL = {"kind": "kill", "target": "rank 1"}


def verdict(records: list[Record], fault: dict[str, Any] | None = None, until: float = 200.0) -> Verdict:
    return judge(planned(fault or KILL), records, until)[0]


def test_a_worker_that_is_replaced_in_time_is_a_fault_survived() -> None:
    found = verdict([*BEGUN, injected(10.0), lost(10.1), *REPLACED])
    assert (found.outcome, found.steps_lost, found.hang) == (Outcome.SURVIVED, 0, False)
    assert (found.named, found.cause) == (True, "WorkerLost crash: killed by SIGKILL")
    assert found.places == ("h[1]",)


def test_the_phases_of_a_recovery_add_up() -> None:
    found = verdict([*BEGUN, injected(10.0), lost(10.1), *REPLACED]).recovery
    assert found is not None
    assert (found.detect_s, found.replace_s, found.world_s, found.first_step_s) == (0.1, 0.1, 0.4, 0.4)
    assert found.total_s == pytest.approx(1.0)


def test_facts_out_of_order_make_no_phase_negative() -> None:
    early = fact(10.05, "WorkerStarted", 1, 11, worker_pid=200)
    found = verdict([*BEGUN, injected(10.0), early, lost(10.1), *REPLACED[1:]]).recovery
    assert found is not None
    assert (found.detect_s, found.replace_s, found.world_s, found.first_step_s) == (0.1, 0.0, 0.5, 0.4)


@pytest.mark.parametrize(
    "after",
    [
        [],
        [lost(10.1)],
        [lost(10.1), REPLACED[0]],
        [lost(10.1), *REPLACED[:-1]],  # one of two has done a step
        [lost(10.1), *world(10.6, 2, 100, step=50)],  # one is left, two are to be
        [fact(10.5, "Progressed", 0, 100, rank=0, step=60)],  # the victim is still there
    ],
)
def test_a_job_that_is_not_whole_again_hangs(after: list[Record]) -> None:
    found = verdict([*BEGUN, injected(10.0), *after])
    assert (found.outcome, found.hang, found.recovery) == (Outcome.NOT_SURVIVED, True, None)
    assert found.reason == "2 workers do not train 190 s later"


def test_a_run_that_ends_before_the_job_could_recover_tells_nothing() -> None:
    assert verdict([*BEGUN, injected(10.0), lost(10.1)], until=12.0).outcome is Outcome.NOT_REACHED


def test_a_job_that_fails_says_why() -> None:
    found = verdict([*BEGUN, injected(10.0), lost(10.1), fact(12.0, "JobFailed", reason="slot h[1] given up")])
    assert (found.outcome, found.reason, found.hang) == (Outcome.NOT_SURVIVED, "slot h[1] given up", False)


def test_a_job_that_is_told_to_stop_has_not_failed() -> None:
    stopped = [fact(12.0, "JobStopped", reason="told to stop")]
    assert verdict([*BEGUN, injected(10.0), *stopped], until=13.0).outcome is Outcome.NOT_REACHED


def test_a_goal_that_is_reached_is_the_end_of_all_faults() -> None:
    assert verdict([*BEGUN, injected(10.0), lost(10.1), fact(11.0, "JobFinished", step=60)]).outcome is Outcome.SURVIVED


def test_a_world_that_begins_behind_has_lost_the_steps_between() -> None:
    again = [fact(10.2, "WorkerStarted", 1, 11, worker_pid=200), *world(10.6, 2, 100, 200, step=30)]
    assert verdict([*BEGUN, injected(10.0, step=52), lost(10.1), *again]).steps_lost == 22


def test_what_comes_after_a_recovery_is_no_longer_the_faults() -> None:
    story = [*BEGUN, injected(10.0), lost(10.1), *REPLACED, *world(20.0, 3, 100, 300, step=10)]
    assert verdict(story).steps_lost == 0


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("term", fact(10.1, "WorkerLeft", 1, 11, worker_pid=101, reason="preempted")),
        ("stop", lost(15.4, cause="hang", summary="no heartbeat for 5.2 s while stepping")),
        ("hold_gil", lost(15.4, cause="hang", summary="no heartbeat for 5.2 s while user")),
        ("spin", lost(15.4, cause="hang", summary="no progress for 60.1 s while user")),
        ("segfault", lost(10.1, summary="killed by SIGSEGV")),
        ("abort", lost(10.1, summary="killed by SIGABRT")),
        ("exit", lost(10.1, summary="exit code 7")),
        ("oom", lost(10.1)),
        ("stdout_child", lost(10.1)),
        ("memory", lost(10.1, summary="killed by SIGABRT")),
        ("raise", fact(10.1, "WorkerFailed", 1, 11, summary=f"RuntimeError: {MESSAGE}", traceback="", step=50)),
    ],
)
def test_each_end_has_the_name_of_what_was_done(kind: str, end: Record) -> None:
    fault = {"kind": kind, "target": "rank 1"}
    later = [fact(20.0, "FaultUndone", fault=1, at_step=99), fact(21.0, "Progressed", 0, 100, rank=0, step=120)]
    found = verdict([*BEGUN, injected(10.0, kind=kind), end, *REPLACED, *later], fault)
    assert (found.outcome, found.named) == (Outcome.SURVIVED, True)
    wrong = lost(10.1, summary="exit code 1")
    assert verdict([*BEGUN, injected(10.0, kind=kind), wrong, *REPLACED, *later], fault).named is False


def test_a_survivor_that_aborts_with_a_lost_world_is_not_blamed() -> None:
    story = [*BEGUN, injected(10.0), lost(10.1), lost(10.15, slot=0, cause="reentry", root=False), *REPLACED]
    assert verdict(story).named is True


def test_whoever_is_blamed_in_the_victims_place_is_named_wrongly() -> None:
    found = verdict([*BEGUN, injected(10.0), lost(10.1), lost(10.15, slot=0, summary="exit code 1"), *REPLACED])
    assert (found.outcome, found.named, found.cause) == (Outcome.SURVIVED, False, "h[0] WorkerLost crash: exit code 1")


def test_a_victim_of_two_faults_ends_of_one_of_them() -> None:
    faults = planned({"kind": "stop", "target": "rank 1"}, {**KILL, "overlap": True})
    story = [*BEGUN, injected(10.0, kind="stop"), injected(10.05, number=2), lost(10.1), *REPLACED]
    assert [v.named for v in judge(faults, story, until=200.0)] == [True, True]


SLOW = {"kind": "discovery_slow", "for_s": 5}


def undone(time: float, step: int) -> Record:
    return fact(time, "FaultUndone", fault=1, at_step=step)


def test_a_fault_that_lasts_is_over_once_it_is_undone_and_training_has_gone_on() -> None:
    here = fact(
        10.0, "FaultInjected", fault=1, kind="discovery_slow", target="", pids=[], places=[], at_step=50, slots=2
    )
    during = [fact(12.0, "Progressed", 0, 100, rank=0, step=70)]
    assert verdict([*BEGUN, here, *during], SLOW, until=13.0).outcome is Outcome.NOT_REACHED
    assert verdict([*BEGUN, here, *during, undone(15.0, 100)], SLOW).hang
    found = verdict(
        [*BEGUN, here, *during, undone(15.0, 100), fact(16.0, "Progressed", 0, 100, rank=0, step=110)], SLOW
    )
    assert (found.outcome, found.recovery, found.named) == (Outcome.SURVIVED, None, None)


def test_a_world_too_small_is_waited_for_until_all_are_back() -> None:
    here = fact(10.0, "FaultInjected", fault=1, kind="host_removed", target="", pids=[], places=[], at_step=50, slots=2)
    fault = {"kind": "host_removed", "for_s": 5}
    alone = [*BEGUN, here, *world(11.0, 2, 100, step=52), undone(15.0, 100)]
    assert verdict([*alone, fact(16.0, "Progressed", 0, 100, rank=0, step=120)], fault).hang
    assert verdict([*alone, *world(17.0, 3, 100, 200, step=130)], fault).outcome is Outcome.SURVIVED


def test_a_world_too_large_is_waited_for_until_the_rest_have_left() -> None:
    here = fact(10.0, "FaultInjected", fault=1, kind="host_added", target="", pids=[], places=[], at_step=50, slots=2)
    fault = {"kind": "host_added", "for_s": 5}
    three = [*BEGUN, here, *world(11.0, 2, 100, 101, 200, step=52), undone(15.0, 100)]
    more = fact(16.0, "Progressed", 0, 100, rank=0, step=120)
    assert verdict([*three, more], fault).hang
    assert verdict([*three, more, *world(17.0, 3, 100, 101, step=130)], fault).outcome is Outcome.SURVIVED


def test_a_driver_that_is_lost_is_replaced_by_another_start() -> None:
    fault = {"kind": "kill", "target": "driver"}
    here = fact(10.0, "FaultInjected", fault=1, kind="kill", target="driver", pids=[9], places=[], at_step=50, slots=2)
    assert verdict([*BEGUN, here, fact(11.0, "Progressed", 0, 100, rank=0, step=60)], fault).hang
    again = [fact(13.0, "JobStarted", restarts=1), *world(18.0, 2, 300, 301, step=50)]
    found = verdict([*BEGUN, here, *again], fault)
    assert (found.outcome, found.named, found.steps_lost) == (Outcome.SURVIVED, True, 0)


def test_an_agent_takes_its_worker_along() -> None:
    fault = {"kind": "kill", "target": "agent 1"}
    here = injected(10.0, pid=11)
    assert verdict([*BEGUN, here, fact(11.0, "Progressed", 0, 100, rank=0, step=60)], fault).hang
    assert verdict([*BEGUN, here, *REPLACED], fault).outcome is Outcome.SURVIVED


@pytest.mark.parametrize(
    ("told", "outcome", "named"),
    [
        (fact(10.3, "CheckpointRejected", path="/r/step-40", reason="digest"), Outcome.SURVIVED, True),
        (fact(10.3, "CheckpointLoaded", path="/r/step-40", step=40), Outcome.NOT_SURVIVED, None),
        (fact(10.3, "CheckpointLoaded", path="/r/step-20", step=20), Outcome.SURVIVED, None),
    ],
)
def test_a_damaged_checkpoint_must_be_rejected(told: Record, outcome: Outcome, named: bool | None) -> None:
    fault = {"kind": "checkpoint_torn"}
    here = fact(
        10.0,
        "FaultInjected",
        fault=1,
        kind="checkpoint_torn",
        target="step-40",
        pids=[],
        places=[],
        at_step=50,
        slots=2,
    )
    found = verdict([*BEGUN, here, told, *world(15.0, 2, 300, 301, step=20)], fault)
    assert (found.outcome, found.named, found.steps_lost) == (outcome, named, 30)


def test_what_was_not_injected_says_why() -> None:
    faults = planned({"kind": "link_down"}, KILL)
    found = judge(faults, [*BEGUN, fact(9.0, "FaultSkipped", fault=1, kind="link_down", reason="needs a link")], 200.0)
    assert [(v.outcome, v.reason) for v in found] == [
        (Outcome.SKIPPED, "needs a link"),
        (Outcome.NOT_REACHED, "the run ended before"),
    ]


GOOD = Verdict(1, Kind.KILL, "rank 1", Outcome.SURVIVED, at_step=50)
BAD = Verdict(2, Kind.KILL, "rank 1", Outcome.NOT_SURVIVED, "no world", at_step=60)
SKIPPED = Verdict(3, Kind.LINK_DOWN, "random", Outcome.SKIPPED, "needs a link")
STOPPED = End(code=143, stopped=True, cut_short="", left=())


@pytest.mark.parametrize(
    ("verdicts", "end", "exact", "faults"),
    [
        ((GOOD, SKIPPED), STOPPED, True, ()),
        ((GOOD, BAD), STOPPED, True, ("fault 2: no world",)),
        ((SKIPPED,), STOPPED, True, ("no fault was injected",)),
        ((GOOD,), STOPPED, False, ("samples: words",)),
        ((GOOD,), STOPPED, None, ("samples: words",)),
        ((GOOD,), End(0, False, "", ()), True, ()),
        ((GOOD,), End(0, True, "", ()), True, ()),
        ((GOOD,), End(143, False, "", ()), True, ("`elastic run` ended with 143",)),
        ((GOOD,), End(-9, True, "", ()), True, ("`elastic run` ended with -9",)),
        ((GOOD,), End(143, True, "too late", ()), True, ("too late",)),
        ((GOOD,), End(143, True, "", ("pid 7: x",)), True, ("1 processes stayed: pid 7: x",)),
    ],
)
def test_a_run_passes_when_nothing_was_lost(
    verdicts: tuple[Verdict, ...], end: End, exact: bool | None, faults: tuple[str, ...]
) -> None:
    found = Report(verdicts, end, exact, ("words",))
    assert found.faults == faults
    assert found.passed == (not faults)


def test_a_run_in_which_two_worlds_trained_at_once_does_not_pass() -> None:
    split = ("two worlds trained at once: 2 on h1 and 2 on h2",)
    found = Report((GOOD,), STOPPED, True, ("words",), split)
    assert found.faults == split
