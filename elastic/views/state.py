"""How a run stands: a pure fold over its facts, its slots' heartbeats and the time."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elastic.events import Record
from elastic.heartbeats import Heartbeat
from elastic.views.goodput import seconds, stretches
from elastic.views.load import Run
from elastic.views.members import Member, members_of
from elastic.views.pauses import LOST, SKEW_S, pauses
from elastic.views.recoveries import Recovery, recoveries
from elastic.views.summary import Summary, summarise
from elastic.views.words import words
from elastic.views.worlds import by_world, members

RATE_S = 60.0  # the pace that the remaining time is reckoned with is that of the last minute
SILENT_S = 60.0  # a run that says nothing for so long may have lost all who could
LATEST = 8


@dataclass(frozen=True, slots=True)
class Saved:
    """The newest checkpoint."""

    step: int
    time: float
    took_s: float
    blocked_s: float
    size_bytes: int


@dataclass(frozen=True)
class State:
    """What `elastic status` shows and `--json` prints.

    Attributes:
        summary: what the run has come to so far.
        phase: starting, training, validating, saving, recovering, or how it ended.
        epoch: the one in progress, from 1. `consumed` of `owed` samples of it are used.
        eta_s: until the goal at the pace of the last minute; None when that cannot be told.
        size: of the newest world.
        heard: when anything was last heard of the run, in seconds since 1970; 0: never.
        silent_s: since then; None once it has ended.
        standbys, warming: of all hosts.
        seconds: where the time went, by phase.
        lost: workers lost, by cause.
        latest: the last facts in plain words, with their time.
    """

    job: str
    directory: str
    summary: Summary
    phase: str
    epoch: int = 0
    epochs: int = 0
    consumed: int = 0
    owed: int = 0
    samples_per_s: float = 0.0
    eta_s: float | None = None
    generation: int = 0
    size: int = 0
    members: tuple[Member, ...] = ()
    standbys: int = 0
    warming: int = 0
    heard: float = 0.0
    silent_s: float | None = None
    checkpoint: Saved | None = None
    checkpoints: int = 0
    checkpoints_failed: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    recoveries: tuple[Recovery, ...] = ()
    latest: tuple[tuple[float, str], ...] = ()


def state_of(run: Run, now: float) -> State:
    """Return how a run stands.

    Args:
        run: its records in the order of their time.
        now: seconds since 1970.
    """
    records = run.records
    spent = seconds(stretches(records))
    summary = summarise(records, spent)
    running = summary.status == "running"
    beats = [b for b in run.beats if running]
    world = _world(records)
    progress = next((r for r in reversed(records) if r.event == "Progressed"), None)
    found = recoveries(records)
    heard = max([r.time for r in records[-1:]] + [b.time for b in beats], default=0.0)
    ready = _standbys(records) if running else 0
    job = next((r for r in records if r.event == "JobStarted"), None)
    return State(
        job=str(job.get("job") if job else run.config.get("name", run.directory.path.name)),
        directory=str(run.directory.path),
        summary=summary,
        phase=_phase(records, beats) if running else summary.status,
        epoch=min(summary.epochs + (1 if running else 0), _epochs(run, progress)),
        epochs=_epochs(run, progress),
        consumed=_of_epoch(progress, summary, "consumed"),
        owed=int(progress.get("owed", 0)) if progress else 0,
        samples_per_s=float(progress.get("samples_per_s", 0.0)) if progress else 0.0,
        eta_s=_eta(records, now) if running else None,
        generation=world[0].generation if world else 0,
        size=int(world[0].get("size", 0)) if world else 0,
        members=members_of(world, beats, records, now),
        standbys=ready,
        warming=sum(b.warming for b in beats),
        heard=heard,
        silent_s=round(max(0.0, now - (heard or now)), 3) if running else None,
        checkpoint=_saved(records),
        checkpoints=sum(r.event == "CheckpointWritten" for r in records),
        checkpoints_failed=sum(r.event == "CheckpointFailed" for r in records),
        seconds={phase.value: round(took, 3) for phase, took in spent.items()},
        lost=_lost(records),
        recoveries=found,
        latest=_latest(records, found),
    )


def _world(records: Sequence[Record]) -> list[Record]:
    parts = by_world(records)
    return sorted(members(parts[-1]), key=lambda r: r.rank) if len(parts) > 1 else []


def _epochs(run: Run, progress: Record | None) -> int:
    return int(progress.get("epochs", 0)) if progress else int(run.config.get("epochs", 0))


def _of_epoch(progress: Record | None, summary: Summary, name: str) -> int:
    if progress is None or int(progress.get("epoch", -1)) != summary.epochs:
        return 0  # of the epoch in progress nothing has been told yet
    return int(progress.get(name, 0))


def _phase(records: Sequence[Record], beats: Sequence[Heartbeat]) -> str:
    waits = pauses(records)
    if not waits or not waits[-1].world:
        return "recovering" if len(waits) > 1 else "starting"
    doing = {b.rank: b.phase for b in beats}.get(0, "")
    return doing if doing in {"validating", "saving"} else "training"


def _eta(records: Sequence[Record], now: float) -> float | None:
    told = [r for r in records if r.event == "Progressed"]
    if len(told) < 2:
        return None
    last = told[-1]
    first = next(r for r in told if r.time >= last.time - RATE_S)
    samples = int(last.get("samples", 0)) - int(first.get("samples", 0))
    if samples <= 0 or last.time <= first.time:
        return None
    left = (int(last.get("epochs")) - int(last.get("epoch"))) * int(last.get("owed")) - int(last.get("consumed"))
    return round(max(0.0, left * (last.time - first.time) / samples - (now - last.time)), 1)


def _standbys(records: Sequence[Record]) -> int:
    """Return how many standbys wait for a slot, as the facts tell."""
    ready: set[int] = set()
    for r in records:
        if r.event == "StandbyReady":
            ready.add(int(r.get("standby_pid")))
        elif r.event in {"StandbyPromoted", "StandbyLost"}:
            ready.discard(int(r.get("standby_pid")))
        elif r.event == "JobStarted":
            ready.clear()
    return len(ready)


def _lost(records: Sequence[Record]) -> dict[str, int]:
    causes = [str(r.get("cause", "user code")) for r in records if r.event in LOST and r.get("root_cause", True)]
    return {cause: causes.count(cause) for cause in dict.fromkeys(causes)}


def _saved(records: Sequence[Record]) -> Saved | None:
    r = next((r for r in reversed(records) if r.event == "CheckpointWritten"), None)
    if r is None:
        return None
    return Saved(
        int(r.get("step")), r.time, float(r.get("took_s")), float(r.get("blocked_s", 0.0)), int(r.get("size_bytes"))
    )


def _latest(records: Sequence[Record], found: Sequence[Recovery]) -> tuple[tuple[float, str], ...]:
    """Return the last facts worth a line; a recovery takes the place of what it consists of."""
    told: list[tuple[float, str]] = []
    for record in reversed(records):
        if len(told) == LATEST:
            break
        text = words(record)
        if text is not None and not (record.event in _PARTS and _is_within(record.time, found)):
            told.append((record.time, text))
    return tuple(sorted([*told, *((r.begin, r.words) for r in found)])[-LATEST:])


def _is_within(time: float, found: Sequence[Recovery]) -> bool:
    nearest = bisect_right(found, time + SKEW_S, key=lambda r: r.begin) - 1
    return nearest >= 0 and time <= found[nearest].end


_PARTS = frozenset({"WorkerLost", "WorldFormed", "HostsChanged", "StandbyPromoted"})
