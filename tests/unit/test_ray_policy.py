"""What follows when an actor is lost, and which GPUs a worker sees."""

import pytest

from elastic.agent.policy import Budget
from elastic.launch.ray.policy import Fail, Lost, Replace, after_loss, visible

FRESH = Budget(2, 60.0, (10.0,))
SPENT = Budget(2, 60.0, (10.0, 11.0, 12.0))


def lost(*, node_answers: bool = True, leaving: bool = False, counted: bool = False) -> Lost:
    return Lost("lost", node_answers, leaving, counted)


@pytest.mark.parametrize(
    ("end", "budget", "decision"),
    [
        pytest.param(lost(), FRESH, Replace("lost"), id="on a node that answers"),
        pytest.param(
            lost(node_answers=False), FRESH, Fail("lost; its node does not answer", gone=True), id="with its node"
        ),
        pytest.param(lost(leaving=True), FRESH, Fail("lost"), id="while it was to leave"),
        pytest.param(
            lost(counted=True), FRESH, Fail("lost while the driver counted on it"), id="counted: two would be too many"
        ),
        pytest.param(lost(), SPENT, Fail("3 actors lost within 60 s, last: lost"), id="too often"),
    ],
)
def test_a_lost_actor_is_replaced_unless_that_is_in_vain(end: Lost, budget: Budget, decision: Replace | Fail) -> None:
    assert after_loss(end, budget) == decision


@pytest.mark.parametrize(
    ("given", "local_rank", "seen", "expected"),
    [
        pytest.param({0: ("3",)}, 0, "own", "3", id="its own"),
        pytest.param({0: ("3",), 1: ("1",)}, 1, "own", "1", id="its own, whatever the others have"),
        pytest.param({0: ("3",), 1: ("1",)}, 1, "node", "3,1", id="the node's, in the order of local ranks"),
        pytest.param({0: ("3",), 1: ("1",)}, 0, "node", "3,1", id="the same for all"),
        pytest.param({1: ("1",)}, 1, "node", "1", id="a lower rank is not known"),
        pytest.param({0: ("0", "1"), 1: ("2", "3")}, 1, "node", "2,3", id="slots of several GPUs"),
    ],
)
def test_a_worker_finds_its_gpu_at_its_local_rank(
    given: dict[int, tuple[str, ...]], local_rank: int, seen: str, expected: str
) -> None:
    found = visible(given, local_rank, seen)
    assert found == expected
    assert found.split(",")[local_rank % len(found.split(","))] in given[local_rank]
