from typing import Any

import pytest

from elastic.chaos.cue import Cue
from elastic.chaos.plan import Plan, schedule
from elastic.events import Record


def cue(**fault: Any) -> Cue:
    return Cue(schedule(Plan.model_validate({"faults": [{"kind": "kill", **fault}]}), seed=1)[0])


def fact(event: str) -> Record:
    return Record(0.0, event, "h", 0, 1, 0, 1, {})


@pytest.mark.parametrize(
    ("fault", "step", "training_s", "due"),
    [
        ({}, 0, -1.0, True),
        ({"step": 50}, 49, 9.0, False),
        ({"step": 50}, 50, 9.0, True),
        ({"at_s": 5}, 99, -1.0, False),
        ({"at_s": 5}, 99, 4.9, False),
        ({"at_s": 5}, 0, 5.0, True),
        ({"at_s": 0}, 0, -1.0, False),  # training has not begun
    ],
)
def test_a_fault_waits_for_its_step_or_time(fault: dict[str, Any], step: int, training_s: float, due: bool) -> None:
    assert cue(**fault).due(step, training_s, now=0.0) is due


def test_an_event_counts_only_after_the_step() -> None:
    found = cue(step=50, event="Committed", count=2)
    found.hear(fact("Committed"))
    assert not found.due(50, 1.0, now=0.0)
    found.hear(fact("Committed"))
    found.hear(fact("Progressed"))
    assert not found.due(60, 1.0, now=1.0)
    found.hear(fact("Committed"))
    assert found.due(60, 1.0, now=2.0)


def test_a_delay_runs_from_the_moment_that_all_else_is_true_and_going_back_does_not_stop_it() -> None:
    found = cue(step=50, delay_s=2)
    assert not found.due(50, 1.0, now=10.0)
    assert not found.due(40, 1.0, now=11.9)
    assert found.due(40, 1.0, now=12.0)
