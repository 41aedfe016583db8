"""The workers of the newest world, as facts and heartbeats tell of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from elastic.events import Record
from elastic.heartbeats import Heartbeat


@dataclass(frozen=True, slots=True)
class Member:
    """A worker of the newest world.

    Attributes:
        state: what it does: stepping, user, validating, saving, ..., "ended"; "?" when nobody tells.
        step_s: one step, median; own_s: of which it needed itself; 0: unknown.
        heartbeat_s: since its last sign of life; None when nobody tells.
        straggles: whether it holds the others up.
    """

    rank: int
    host: str
    slot: int
    pid: int
    state: str
    step_s: float = 0.0
    own_s: float = 0.0
    heartbeat_s: float | None = None
    straggles: bool = False


def members_of(
    world: Sequence[Record], beats: Sequence[Heartbeat], records: Sequence[Record], now: float
) -> tuple[Member, ...]:
    """Return the workers of a world, by rank.

    Args:
        world: what each of them has told of it when it formed.
        beats: what the slots' agents have last said.
        records: of the run.
        now: seconds since 1970.
    """
    by_slot = {(b.host, b.slot): b for b in beats}
    here = {r.rank: b for r in world if (b := by_slot.get((r.host, r.slot))) is not None and b.worker_pid == r.pid}
    slow = _slow(world, records)
    ended = {int(r.get("worker_pid", 0)) for r in records if r.event in {"WorkerLost", "WorkerLeft"}}
    found = []
    for r in world:
        b = here.get(r.rank)
        if b is None:
            found.append(Member(r.rank, r.host, r.slot, r.pid, "ended" if r.pid in ended else "?"))
            continue
        age = round(max(0.0, now - b.time) + b.silent_s, 3)
        found.append(Member(r.rank, r.host, r.slot, r.pid, b.phase, b.step_s, b.own_s, age, r.rank in slow))
    return tuple(found)


def _slow(world: Sequence[Record], records: Sequence[Record]) -> set[int]:
    """Return the ranks of a world that hold the others up, as rank 0's agent has told."""
    found: set[int] = set()
    for r in records:
        if world and r.generation == world[0].generation and r.event in {"WorkerStraggled", "WorkerCaughtUp"}:
            (found.add if r.event == "WorkerStraggled" else found.discard)(int(r.get("of_rank")))
    return found
