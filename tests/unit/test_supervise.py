from itertools import count
from typing import Any

import pytest

from elastic.events import Record
from elastic.launch.supervise import Done, Ended, GiveUp, StartAgain, Starts, after_launcher, root_cause

_times = count(1.0)


def fact(event: str, host: str = "alpha", slot: int = 0, rank: int = 0, **fields: Any) -> Record:
    return Record(next(_times), event, host, slot, pid=42, rank=rank, generation=1, fields=fields)


LOST = fact("WorkerLost", cause="crash", summary="killed by SIGKILL")
FAILED = fact("WorkerFailed", slot=1, rank=3, summary="ValueError: bad sample", traceback="Traceback ...", step=0)
GAVE_UP = fact("SlotGaveUp", reason="6 ends by crash within 60 s", bug=False)
BUG = fact("SlotGaveUp", slot=1, reason="the same error twice on the first step: ValueError: bad sample", bug=True)
GAVE_UP_LATER = fact("SlotGaveUp", host="beta", reason="2 ends by hang within 300 s", bug=False)
FINISHED = fact("JobFinished", epochs=3)


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        pytest.param(
            Ended([LOST], 1, "Job failed"), GiveUp("the launcher ended with code 1: Job failed"), id="its last words"
        ),
        pytest.param(Ended([], 255), GiveUp("the launcher ended with code 255: it printed nothing"), id="no word"),
        pytest.param(
            Ended([LOST, GAVE_UP], 1, "Job failed"),
            GiveUp("slot alpha[0] given up: 6 ends by crash within 60 s"),
            id="a slot given up",
        ),
        pytest.param(
            Ended([GAVE_UP, GAVE_UP_LATER], 1),
            GiveUp("slot alpha[0] given up: 6 ends by crash within 60 s"),
            id="the first of several slots",
        ),
        pytest.param(
            Ended([FAILED, BUG], 1),
            GiveUp(
                "slot alpha[1] given up: the same error twice on the first step: ValueError: bad sample",
                "Traceback ...",
                "worker alpha[1], rank 3",
            ),
            id="a slot given up for an exception, with its traceback",
        ),
        pytest.param(
            Ended([FAILED, LOST], 1, "Job failed"),
            GiveUp("the launcher ended with code 1: Job failed"),
            id="an exception that was restarted is no cause",
        ),
        pytest.param(
            Ended([GAVE_UP], -15, "terminated", stalled_s=300.4),
            GiveUp("nothing happened for 300 s"),
            id="ended for standing still",
        ),
    ],
)
def test_the_first_thing_that_went_wrong_is_the_cause(end: Ended, cause: GiveUp) -> None:
    assert root_cause(end) == cause


@pytest.mark.parametrize(
    ("end", "restarts", "kind"),
    [
        pytest.param(Ended([FINISHED], 0), 0, Done, id="the goal"),
        pytest.param(Ended([FINISHED], 1, "Job failed"), 0, Done, id="the goal, whatever the launcher says"),
        pytest.param(Ended([GAVE_UP, FINISHED], 1), 3, Done, id="the goal in spite of a lost slot"),
        pytest.param(Ended([], 0), 0, StartAgain, id="code 0 without the goal"),
        pytest.param(Ended([GAVE_UP], 1), 0, StartAgain, id="a slot given up"),
        pytest.param(Ended([], -9), 2, StartAgain, id="the last restart"),
        pytest.param(Ended([], -9), 3, GiveUp, id="no restart left"),
        pytest.param(Ended([FAILED, BUG], 1), 0, GiveUp, id="a bug is not tried again"),
        pytest.param(Ended([GAVE_UP, BUG], 1), 0, GiveUp, id="a bug, though another slot was first"),
        pytest.param(Ended([], -15, stalled_s=300.0), 0, StartAgain, id="it stood still"),
        pytest.param(Ended([BUG], -15, stalled_s=300.0), 0, GiveUp, id="it stood still for a bug"),
    ],
)
def test_a_launcher_that_ended_is_started_again_unless_that_is_in_vain(
    end: Ended, restarts: int, kind: type[Done | GiveUp | StartAgain]
) -> None:
    assert isinstance(after_launcher(end, restarts, most_restarts=3, backoff_s=1.0), kind)


def test_what_is_started_again_says_why() -> None:
    assert after_launcher(Ended([GAVE_UP], 1), 0, 3, 1.0) == StartAgain(
        "slot alpha[0] given up: 6 ends by crash within 60 s", 1.0
    )


def test_giving_up_names_the_root_cause() -> None:
    end = Ended([FAILED, BUG], 1)
    assert after_launcher(end, 0, 3, 1.0) == root_cause(end)


def test_each_restart_waits_twice_as_long() -> None:
    decisions = [after_launcher(Ended([], 1), n, most_restarts=4, backoff_s=0.5) for n in range(4)]
    assert [d.delay_s for d in decisions if isinstance(d, StartAgain)] == [0.5, 1.0, 2.0, 4.0]


def test_no_restarts_wanted_means_none() -> None:
    assert after_launcher(Ended([], 1, "gone"), 0, most_restarts=0, backoff_s=1.0) == GiveUp(
        "the launcher ended with code 1: gone"
    )


@pytest.mark.parametrize(("code", "full", "done"), [(0, True, True), (0, False, False), (1, True, False)])
def test_a_goal_that_no_room_was_left_to_tell_of_is_reached_all_the_same(code: int, full: bool, done: bool) -> None:
    end = Ended([LOST], code, "bye", disk_full=full)
    assert isinstance(after_launcher(end, 0, 3, 1.0), Done) is done


def progressed(step: int) -> Ended:
    return Ended([fact("Progressed", step=step), LOST], -9)


def test_restarts_that_brought_training_further_are_forgiven() -> None:
    starts = Starts()
    for step in (100, 250, 300, 900, 1000, 1100):
        starts = starts.ended(progressed(step))
        assert isinstance(after_launcher(progressed(step), starts.in_vain, 3, 1.0), StartAgain)
        starts = starts.another()
    assert (starts.again, starts.in_vain) == (6, 1)


def test_restarts_that_end_where_the_last_one_did_are_counted() -> None:
    decisions, starts = [], Starts()
    for step in (500, 500, 480, 500):
        starts = starts.ended(progressed(step))
        decisions.append(type(after_launcher(progressed(step), starts.in_vain, 3, 1.0)))
        starts = starts.another()
    assert decisions == [StartAgain, StartAgain, StartAgain, GiveUp]


def test_where_training_goes_on_from_is_not_how_far_it_came() -> None:
    resumed = Ended([fact("CheckpointLoaded", step=700), fact("WorldFormed", step=700)], -9)
    assert Starts(again=1, in_vain=1, furthest=600).ended(resumed).in_vain == 1
