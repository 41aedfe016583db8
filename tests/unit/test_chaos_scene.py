from typing import Any

import pytest

from elastic.chaos.scene import Process, aim, scene_of
from elastic.events import Record


def fact(event: str, slot: int = -1, pid: int = 1, generation: int = 1, rank: int = -1, **own: Any) -> Record:
    return Record(0.0, event, "h", slot, pid, rank, generation, own)


def started(slot: int, pid: int) -> Record:
    return fact("WorkerStarted", slot, pid=10 + slot, worker_pid=pid)


def formed(generation: int, *pids: int, step: int = 0) -> list[Record]:
    size = len(pids)
    return [
        fact("WorldFormed", rank, pid, generation, rank, size=size, epoch=0, step=step) for rank, pid in enumerate(pids)
    ]


def stepped(generation: int, *pids: int, step: int = 1) -> list[Record]:
    return [fact("FirstStepDone", rank, pid, generation, rank, step=step) for rank, pid in enumerate(pids)]


BEGUN = [
    fact("JobStarted", restarts=0),
    fact("AgentStarted", 0, pid=10),
    fact("AgentStarted", 1, pid=11),
    started(0, 100),
    started(1, 101),
    *formed(1, 100, 101),
]
TRAINING = [*BEGUN, *stepped(1, 100, 101), fact("StandbyReady", 0, standby_pid=200)]


def test_a_world_is_whole_when_every_member_has_done_a_step() -> None:
    assert not scene_of(BEGUN).world.whole
    assert not scene_of([*BEGUN, *stepped(1, 100)]).world.whole
    assert scene_of(TRAINING).world.whole
    assert not scene_of([*TRAINING, *formed(2, 100, 200)[:1]]).world.whole


def test_a_step_of_a_former_world_does_not_count_for_the_next() -> None:
    found = scene_of([*TRAINING, *formed(2, 100, 200), *stepped(1, 100, 200)])
    assert not found.world.whole


def test_a_rank_that_forms_the_same_world_again_is_of_another() -> None:
    found = scene_of([*TRAINING, *formed(1, 100, 300)])
    assert found.world.number == 2
    assert found.world.pids == {100, 300}


def test_progress_goes_back_with_a_world_that_begins_behind() -> None:
    reached = [*TRAINING, fact("Progressed", rank=0, step=50)]
    assert scene_of(reached).step == 50
    assert scene_of([*reached, *formed(2, 100, 200, step=40)]).step == 40
    assert scene_of([*reached, fact("CheckpointLoaded", step=90)]).step == 50


def test_a_new_launcher_has_none_of_the_processes_of_the_last() -> None:
    found = scene_of([*TRAINING, fact("JobStarted", restarts=1)])
    assert (found.launchers, found.agents, found.workers, found.standbys) == (2, {}, {}, ())


@pytest.mark.parametrize(
    ("target", "draw", "pids"),
    [
        ("rank 1", 0.0, [101]),
        ("rank 7", 0.0, []),
        ("random", 0.0, [100]),
        ("random", 0.99, [101]),
        ("all", 0.0, [100, 101]),
        ("host h", 0.0, [100, 101]),
        ("host other", 0.0, []),
        ("agent 1", 0.0, [11]),
        ("agent 2", 0.0, []),
        ("standby", 0.0, [200]),
        ("newcomer", 0.0, []),
        ("driver", 0.0, []),
    ],
)
def test_targets_are_those_of_the_newest_world(target: str, draw: float, pids: list[int]) -> None:
    assert [p.pid for p in aim(target, draw, scene_of(TRAINING))] == pids


def test_an_agent_whose_worker_is_not_in_the_world_is_not_aimed_at() -> None:
    story = [*TRAINING, fact("AgentStarted", 2, pid=12), started(2, 300)]
    assert aim("agent 2", 0.0, scene_of(story)) == ()
    assert [p.pid for p in aim("agent 1", 0.0, scene_of(story))] == [11]


def test_a_newcomer_is_one_until_its_first_step() -> None:
    story = [*TRAINING, fact("StandbyPromoted", 0, standby_pid=200), started(1, 200)]
    assert aim("newcomer", 0.0, scene_of(story)) == (Process(200, ("h", 1)),)
    assert scene_of(story).standbys == ()
    story += formed(2, 100, 200)
    assert aim("newcomer", 0.0, scene_of(story)) == (Process(200, ("h", 1)),)
    assert aim("newcomer", 0.0, scene_of([*story, *stepped(2, 100, 200)])) == ()


def test_the_worker_that_was_started_last_is_the_newcomer() -> None:
    assert [p.pid for p in aim("newcomer", 0.0, scene_of([*TRAINING, started(1, 300), started(0, 301)]))] == [301]
