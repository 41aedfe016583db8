from typing import Any

import pytest

from elastic.events import Record
from elastic.views.words import words


def say(event: str, rank: int = 0, generation: int = 3, **own: Any) -> str | None:
    return words(Record(1.0, event, "node7", 2, 99, rank, generation, own))


@pytest.mark.parametrize(
    ("event", "own", "expected"),
    [
        ("WorldFormed", {"size": 4, "step": 120}, "world 3: 4 workers, from step 120"),
        ("WorkerLost", {"summary": "killed by SIGKILL", "root_cause": True}, "worker node7[2] lost: killed by SIGKILL"),
        ("WorkerLeft", {"reason": "drained"}, "worker node7[2] left: drained"),
        ("SlotGaveUp", {"reason": "3 crashes"}, "slot node7[2] given up: 3 crashes"),
        ("HostsChanged", {"step": 5}, "hosts changed: the next world is being made"),
        ("CheckpointRejected", {"path": "p", "reason": "torn"}, "checkpoint p rejected: torn"),
        ("CheckpointFailed", {"step": 5, "error": "disk full"}, "checkpoint of step 5 not written: disk full"),
        ("CheckpointLoaded", {"path": "p", "step": 5}, "going on from p (step 5)"),
        ("JobStarted", {"restarts": 2}, "start 3 of the launcher"),
    ],
)
def test_a_fact_that_matters_to_a_person_has_words(event: str, own: dict[str, Any], expected: str) -> None:
    assert say(event, **own) == expected


@pytest.mark.parametrize(
    ("event", "rank", "own"),
    [
        ("WorldFormed", 1, {"size": 4, "step": 120}),  # each rank records it; one line is enough
        ("HostsChanged", 1, {"step": 5}),
        ("WorkerLost", 1, {"summary": "its peer died", "root_cause": False}),
        ("WorkerLeft", 0, {"reason": "goal"}),
        ("JobStarted", -1, {"restarts": 0}),
        ("Progressed", 0, {"step": 5}),
        ("Committed", 0, {"step": 5}),
        ("FromTheFuture", 0, {}),
    ],
)
def test_a_fact_that_would_only_be_noise_has_none(event: str, rank: int, own: dict[str, Any]) -> None:
    assert say(event, rank, **own) is None
