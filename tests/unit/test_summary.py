import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.events import Committed, EventLog, JobFinished, Record
from elastic.rundir import RunDir
from elastic.views.summary import Summary, finished, lost_steps, summarise, write


def fact(time: float, event: str, generation: int = 1, rank: int = 0, **own: Any) -> Record:
    return Record(time, event, "h", rank, 100 + rank, rank, generation, own)


def formed(time: float, generation: int, size: int, step: int) -> list[Record]:
    ranks = range(size)
    return [fact(time + r / 100, "WorldFormed", generation, r, size=size, epoch=0, step=step) for r in ranks]


def first_step(time: float, generation: int, step: int, *pauses: float) -> list[Record]:
    return [fact(time, "FirstStepDone", generation, rank, step=step, pause_s=p) for rank, p in enumerate(pauses)]


# 20 s: 4 s to the first step, one worker lost at step 40, the survivor stood still for 1.5 s.
CURED = [
    fact(0.0, "JobStarted", 0, -1, job="mnist", restarts=0),
    *formed(3.0, 1, 2, 0),
    *first_step(4.0, 1, 1, 0.0, 0.0),
    fact(9.0, "Progressed", step=40, samples=2560),
    fact(9.5, "WorkerLost", 1, 1, root_cause=True),
    fact(9.6, "WorkerLost", 1, 0, root_cause=False),
    *formed(10.5, 2, 2, 40),
    *first_step(11.0, 2, 41, 1.5, 0.0),
    fact(15.0, "EpochEnded", 2, epoch=0, step=50, samples=3200, metrics={"loss": 0.5}),
    fact(19.0, "EpochEnded", 2, epoch=1, step=100, samples=6400, metrics={"loss": 0.25}),
]
FINISHED = [
    *CURED,
    fact(
        20.0, "JobFinished", 2, epochs=2, step=100, samples=6400, samples_owed=6400, metrics={"loss": 0.2, "acc": 0.9}
    ),
]


def test_a_finished_run_says_what_it_came_to() -> None:
    assert summarise(FINISHED) == Summary(
        status="finished",
        epochs=2,
        steps=100,
        metrics={"loss": 0.2, "acc": 0.9},
        wall_s=20.0,
        generations=2,
        world_sizes=(2, 2),
        workers_lost=1,
        lost_steps=0,
        samples_owed=6400,
        samples_seen=6400,
        goodput=0.725,  # 1 - (4 + 1.5) / 20
    )


def test_a_failed_run_says_why_and_how_far_it_came() -> None:
    found = summarise([*CURED, fact(20.0, "JobFailed", 0, -1, reason="slot h[1] given up")])
    assert (found.status, found.reason) == ("failed", "slot h[1] given up")
    assert (found.epochs, found.steps, found.samples_seen, found.samples_owed) == (2, 100, 6400, 0)
    assert found.metrics == {"loss": 0.25}


def test_a_stopped_run_is_no_failure() -> None:
    assert summarise([*CURED, fact(20.0, "JobStopped", 0, -1, reason="told to stop")]).status == "stopped"


def test_a_run_without_an_end_is_running() -> None:
    found = summarise(CURED)
    assert (found.status, found.wall_s, found.reason) == ("running", 19.0, "")
    assert found.goodput == pytest.approx(1 - 5.5 / 19, abs=1e-4)


def test_a_run_without_facts_is_running() -> None:
    assert summarise([]) == Summary(status="running")


def test_a_run_that_never_trained_has_no_goodput() -> None:
    found = summarise([fact(0.0, "JobStarted", 0, -1), fact(9.0, "JobFailed", 0, -1, reason="no slots")])
    assert (found.goodput, found.steps, found.world_sizes) == (0.0, 0, ())


def test_what_follows_the_end_does_not_lengthen_the_run() -> None:
    assert summarise([*FINISHED, fact(50.0, "WorkerLeft", 2, reason="goal")]).wall_s == 20.0


def test_a_world_counts_once_however_many_workers_form_it() -> None:
    records = [*formed(1.0, 1, 3, 0), *formed(2.0, 2, 2, 10), *formed(3.0, 3, 4, 20)]
    assert summarise(records).world_sizes == (3, 2, 4)
    assert summarise(records).generations == 3


def test_a_world_that_forms_where_training_was_loses_nothing() -> None:
    assert lost_steps(FINISHED) == 0


# 20 s: 4 s to the first step, at step 40 everything was lost and the checkpoint of step 30 loaded.
REDONE = [
    fact(0.0, "JobStarted", 0, -1, restarts=0),
    *formed(3.0, 1, 2, 0),
    *first_step(4.0, 1, 1, 0.0, 0.0),
    fact(8.0, "Committed", step=30),
    fact(9.0, "Progressed", step=40),
    fact(10.0, "CheckpointLoaded", 1, step=30),
    *formed(11.0, 2, 2, 30),
    *first_step(11.0, 2, 31, 2.0, 2.0),
    fact(14.0, "Progressed", 2, step=40),
    fact(20.0, "JobFinished", 2, epochs=1, step=90, samples=90, samples_owed=90, metrics={}),
]


def test_steps_that_a_checkpoint_did_not_hold_are_lost_once() -> None:
    assert lost_steps(REDONE) == 10


def test_steps_done_again_are_no_goodput() -> None:
    # until the first step 4 s, the pause 2 s, and 3 s until step 40 was reached again
    assert summarise(REDONE).goodput == 1 - 9 / 20


def test_every_total_loss_adds_its_steps() -> None:
    until_33 = [*REDONE[:-2], fact(12.0, "Progressed", 2, step=33)]
    assert lost_steps([*until_33, *formed(16.0, 3, 2, 30), fact(20.0, "Progressed", 3, step=60)]) == 10 + 3


# As REDONE, but the way it happens: the new workers know nothing of the old ones, so they number their world 1 and
# measure no pause. 10 s lie between the last step of the old world and the first of the new one.
RESTARTED = [
    fact(0.0, "JobStarted", 0, -1, restarts=0),
    *formed(1.0, 1, 2, 0),
    *first_step(1.0, 1, 1, 0.0, 0.0),
    fact(6.0, "Progressed", step=40),
    fact(6.0, "WorkerLost", 1, 0, root_cause=True),
    fact(6.0, "WorkerLost", 1, 1, root_cause=True),
    fact(15.0, "CheckpointLoaded", 0, step=30),
    *formed(15.5, 1, 2, 30),
    *first_step(16.0, 1, 31, 0.0, 0.0),
    fact(20.0, "JobFinished", 1, epochs=1, step=90, samples=90, samples_owed=90, metrics={}),
]


def test_steps_lost_with_every_worker_are_counted() -> None:
    assert lost_steps(RESTARTED) == 10


def test_a_world_of_new_workers_alone_is_one_more_world() -> None:
    assert summarise(RESTARTED).world_sizes == (2, 2)
    assert summarise(RESTARTED).generations == 2


def test_worlds_are_told_apart_though_the_clocks_of_hosts_differ() -> None:
    records = [*formed(1.0, 1, 2, 0), *formed(2.0, 2, 2, 10)]
    records[1], records[2] = records[2], records[1]
    assert summarise(records).generations == 2


def test_the_pause_of_a_total_loss_is_no_goodput() -> None:
    # 1 s to the first step, 10 s until there were workers again, 9 of the 59 steps in the last 4 s done again
    assert summarise(RESTARTED).goodput == round(1 - (11 + 4 * 9 / 59) / 20, 4)


def test_a_run_that_ends_without_workers_was_no_good_since_their_loss() -> None:
    ended = [*RESTARTED[:6], fact(20.0, "JobFailed", 0, -1, reason="no slots")]
    assert summarise(ended).goodput == 5 / 20


def test_a_run_that_was_stopped_and_is_started_again_is_running() -> None:
    again = [*CURED, fact(20.0, "JobStopped", 0, -1, reason="told to stop"), fact(30.0, "JobStarted", 0, -1)]
    assert (summarise(again).status, summarise(again).wall_s) == ("running", 30.0)


def test_a_world_that_goes_back_takes_its_steps_and_epochs_back() -> None:
    ended = [fact(float(e), "EpochEnded", epoch=e, step=10 * (e + 1), samples=0, metrics={}) for e in range(3)]
    world = fact(9.0, "WorldFormed", size=1, epoch=2, step=20)
    for more, epochs, steps in ([], 2, 20), ([fact(10.0, "Progressed", epoch=2, step=25)], 2, 25):
        found = summarise([*formed(0.0, 1, 1, 0), *ended, world, *more])
        assert (found.epochs, found.steps, found.lost_steps) == (epochs, steps, 10)


def test_an_epoch_that_was_done_again_counts_once() -> None:
    ends = [fact(t, "EpochEnded", epoch=epoch, step=10, metrics={}) for t, epoch in ((1.0, 0), (2.0, 0), (3.0, 1))]
    assert summarise(ends).epochs == 2


def test_a_checkpoint_that_is_written_late_takes_no_steps_back() -> None:
    assert summarise([fact(1.0, "Progressed", step=14), fact(2.0, "CheckpointWritten", step=10)]).steps == 14


@given(
    st.lists(
        st.builds(
            fact,
            st.floats(0, 100),
            st.sampled_from(["WorldFormed", "FirstStepDone", "Progressed", "JobStarted", "JobFailed", "WorkerLost"]),
            st.integers(0, 5),
            st.integers(-1, 3),
            step=st.integers(0, 1000),
            size=st.integers(1, 4),
            pause_s=st.floats(0, 200),
        )
    )
)
def test_goodput_is_a_share_whatever_happened(records: list[Record]) -> None:
    records.sort(key=lambda r: r.time)
    before = copy.deepcopy(records)
    found = summarise(records)
    assert 0.0 <= found.goodput <= 1.0
    assert found.lost_steps >= 0
    assert records == before
    assert summarise(records) == found


def test_a_run_without_a_hitch_is_all_goodput_but_its_start() -> None:
    started = [fact(0.0, "JobStarted"), *formed(0.0, 1, 1, 0), *first_step(0.0, 1, 1, 0.0)]
    records = [*started, fact(10.0, "JobFinished", step=10)]
    assert summarise(records).goodput == 1.0


def test_a_finished_summary_is_found_again(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    EventLog(run.events, host="h").emit(JobFinished(2, 100, 6400, 6400, {"loss": 0.2}, stopped_early=True))
    written = write(run)
    found = finished(run)
    assert found is not None
    assert (found.status, found.epochs, found.stopped_early) == ("finished", 2, True)
    assert found.metrics == written.metrics == {"loss": 0.2}
    assert {p.name for p in tmp_path.iterdir()} == {"events.jsonl", "summary.json"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"status": "finished", "unknown": 1}', '{"status": "failed"}'])
def test_a_run_with_another_summary_has_not_finished(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    assert finished(RunDir(tmp_path)) is None


def test_a_run_that_goes_on_has_not_finished(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert finished(run) is None
    EventLog(run.events, host="h").emit(Committed(epoch=0, step=1))
    write(run)
    assert finished(run) is None


def test_the_digest_of_the_final_weights_is_rank_0s() -> None:
    facts = [fact(1.0, "Progressed", step=5), fact(2.0, "WeightsHashed", step=5, sha256="abc")]
    assert summarise([replace(r, rank=0) for r in facts]).weights_sha256 == "abc"
    assert summarise([replace(r, rank=1) for r in facts]).weights_sha256 == ""
    later = [*facts, fact(3.0, "Progressed", step=6)]
    assert summarise([replace(r, rank=0) for r in later]).weights_sha256 == ""
