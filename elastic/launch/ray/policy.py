"""What follows when a slot's actor has ended: pure decisions with their reasons."""

from collections.abc import Mapping
from dataclasses import dataclass

from elastic.agent.policy import Budget


@dataclass(frozen=True, slots=True)
class Lost:
    """An actor that went without its agent having said an exit code.

    Attributes:
        why: what was seen.
        node_answers: the node's raylet is there.
        leaving: the job, or this host's part of it, ends anyway.
        counted: the driver holds the slot for ready in a round that is not complete: its agent had asked.
    """

    why: str
    node_answers: bool
    leaving: bool
    counted: bool


@dataclass(frozen=True, slots=True)
class Replace:
    """Start another actor in this slot; the driver hears nothing."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Tell the driver that the slot has failed; `gone`: so has its node."""

    reason: str
    gone: bool = False


def after_loss(lost: Lost, budget: Budget) -> Replace | Fail:
    """Choose what a slot does that has lost its actor.

    Args:
        lost: the facts.
        budget: of such ends, this one included.
    """
    if not lost.node_answers:
        return Fail(f"{lost.why}; its node does not answer", gone=True)
    if lost.leaving:
        return Fail(lost.why)
    if lost.counted:
        return Fail(f"{lost.why} while the driver counted on it")
    if budget.spent:
        return Fail(f"{len(budget.ends)} actors lost within {budget.window_s:.0f} s, last: {lost.why}")
    return Replace(lost.why)


def visible(by_local_rank: Mapping[int, tuple[str, ...]], local_rank: int, seen: str) -> str:
    """Return CUDA_VISIBLE_DEVICES for a slot, such that the GPU at `local_rank`, modulo their number, is its own.

    Args:
        by_local_rank: the ids that Ray gave to the node's slots, as far as they are known.
        local_rank: of the slot, which is among them.
        seen: "own" for its own alone; "node" for those of the node's slots of one GPU each.
    """
    own = by_local_rank[local_rank]
    ranks = range(max(by_local_rank) + 1)
    if seen == "own" or len(own) != 1 or any(len(by_local_rank.get(rank, ())) != 1 for rank in ranks):
        return ",".join(own)
    return ",".join(by_local_rank[rank][0] for rank in ranks)
