import pytest

from elastic.events import Record
from elastic.views.recoveries import recoveries
from tests.runs import BROKEN, HEALED, RESTARTED, TRAINING, fact, first_step, formed, progressed


def test_a_killed_worker_is_told_of_in_one_sentence() -> None:
    (found,) = recoveries(HEALED)
    assert found.words == "rank 1 on h was killed by SIGKILL; replaced from standby in 0.60 s; 0 steps done again"
    assert (found.cause, found.over, found.generation, found.size_before, found.size_after) == ("crash", True, 2, 2, 2)


def test_the_phases_of_a_recovery_add_up_to_it() -> None:
    (found,) = recoveries(HEALED)
    phases = {"detect": 0.1, "idle": 0.05, "rendezvous": 0.25, "sync": 0.1, "first step": 0.1}
    assert found.phases_s == pytest.approx(phases, abs=1e-6)
    assert found.took_s == pytest.approx(0.6)


def test_the_start_and_the_end_are_no_recoveries() -> None:
    assert recoveries(TRAINING) == ()
    assert recoveries([*TRAINING, fact(12.0, "JobStopped", 0, -1, reason="told to stop")]) == ()
    assert recoveries([]) == ()


def test_a_recovery_that_lasts_says_so() -> None:
    (found,) = recoveries(BROKEN)
    assert (found.words, found.over, found.generation) == (
        "rank 1 on h was killed by SIGKILL; not over yet",
        False,
        0,
    )


def lost(**own: object) -> list[Record]:
    """Return HEALED with another end of the worker."""
    event = "WorkerFailed" if "traceback" in own else "WorkerLost"
    fields = {"worker_pid": 101, "root_cause": True} | own
    return [fact(10.1, event, 1, 1, **fields) if r.event == "WorkerLost" else r for r in HEALED]


@pytest.mark.parametrize(
    ("own", "cause", "words"),
    [
        (
            {"cause": "hang", "summary": "no heartbeat for 5.1 s while stepping"},
            "hang",
            "rank 1 on h hung (no heartbeat for 5.1 s while stepping); ",
        ),
        ({"cause": "crash", "summary": "exit code 3"}, "crash", "rank 1 on h was lost (exit code 3); "),
        ({"summary": "ValueError: no", "traceback": "..."}, "user code", "rank 1 on h failed (ValueError: no); "),
    ],
)
def test_each_kind_of_loss_has_its_verb(own: dict[str, object], cause: str, words: str) -> None:
    (found,) = recoveries(lost(**own))
    assert found.cause == cause
    assert found.words.startswith(words)


def test_a_cold_replacement_is_told_from_a_standby() -> None:
    cold = [
        fact(r.time, r.event, 1, 1, **r.fields | {"source": "cold"}) if r.get("source") == "standby" else r
        for r in HEALED
    ]
    (found,) = recoveries(cold)
    assert "; replaced by a new process in 0.60 s; " in found.words


def test_a_worker_that_is_not_replaced_leaves_fewer() -> None:
    records = [*BROKEN, *formed(10.5, 2, 1, 60, rendezvous=0.2, sync=0.1), *first_step(10.6, 2, 61, 0.6)]
    (found,) = recoveries(records)
    assert found.words == "rank 1 on h was killed by SIGKILL; 1 worker went on after 0.60 s; 0 steps done again"
    assert (found.size_before, found.size_after) == (2, 1)


def test_a_host_that_is_cut_off_tells_nothing_itself() -> None:
    silent = [r for r in BROKEN if r.event not in {"WorkerLost", "StandbyPromoted", "WorkerStarted"}]
    records = [*silent, *formed(15.0, 2, 1, 60), *first_step(15.1, 2, 61, 5.0)]
    (found,) = recoveries(records)
    assert (found.cause, found.words.partition(";")[0]) == ("peer gone", "1 worker went silent")


@pytest.mark.parametrize(("size", "words"), [(3, "1 worker joined"), (1, "1 worker left"), (2, "2 workers as before")])
def test_a_change_of_hosts_is_no_loss(size: int, words: str) -> None:
    change = [fact(9.95, "HostsChanged", 1, 0, step=59)]
    records = [*TRAINING, *change, *formed(10.3, 2, size, 60), *first_step(10.5, 2, 61, *[0.5] * size)]
    (found,) = recoveries(records)
    assert (found.cause, found.words) == (
        "hosts changed",
        f"hosts changed: {words}; training went on after 0.50 s; 0 steps done again",
    )


def test_a_total_loss_counts_what_is_done_again() -> None:
    (found,) = recoveries(RESTARTED)
    assert found.redone == 10
    assert found.words == (
        "rank 0 on h was killed by SIGKILL and rank 1 on h was killed by SIGKILL; "
        "replaced by a new process in 10.00 s; 10 steps done again"
    )
    assert found.phases_s["idle"] == pytest.approx(9.0)


def test_a_loss_long_before_is_not_blamed() -> None:
    newcomer = fact(5.0, "WorkerLost", 0, 2, worker_pid=300, cause="crash", summary="exit code 1", root_cause=True)
    records = sorted([*HEALED, newcomer], key=lambda r: r.time)
    (found,) = recoveries(records)
    assert "exit code 1" not in found.words


def test_each_interruption_is_told_once() -> None:
    more = [
        *[r for r in HEALED if r.time < 12.5],
        fact(14.0, "CollectiveFailed", 2, 1, step=90, error="gone"),
        fact(14.1, "WorkerLost", 2, 0, worker_pid=100, cause="crash", summary="killed by SIGKILL", root_cause=True),
        *formed(14.4, 3, 2, 90),
        *first_step(14.5, 3, 91, 0.0, 0.6),
        progressed(15.0, 95, 3),
    ]
    found = recoveries(more)
    assert [r.words.partition(" was")[0] for r in found] == ["rank 1 on h", "rank 0 on h"]
    assert [r.generation for r in found] == [2, 3]


def test_a_slot_that_loses_two_workers_in_one_recovery_is_named_once() -> None:
    again = [
        fact(t, "WorkerLost", 1, 1, worker_pid=201, cause="crash", summary="killed by SIGKILL") for t in (10.2, 10.3)
    ]
    (found,) = recoveries(sorted([*HEALED, *again], key=lambda r: r.time))
    assert found.words.startswith("rank 1 on h was killed by SIGKILL (3 times); replaced ")
