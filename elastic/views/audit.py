"""Was every sample used once an epoch? Proven from what the workers wrote down, and from nothing else.

With `audit: true` each worker keeps a file of JSON lines in the run directory's `audit/`:

    {"world": 3, "epoch": 1, "step": 120}                    world 3 goes on after step 120
    {"fed": 3, "epoch": 1, "step": 121, "indices": [7, 4]}   before the collective of step 121
    {"done": 3, "step": 121}                                 after it
    {"ended": 3, "epoch": 1, "samples": 500, "owed": 500}    an epoch's last step is done

A line is with the kernel before the worker goes on, so a killed worker has written whatever it
took part in. Which steps count follows from the lines alone: a world keeps the steps up to where it
goes on from, and what an earlier world did beyond that is undone; of the last world's steps those
count that some worker saw complete. The samples of a step that counts are those that its world's
workers fed into it. No code of the sampler is used.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LISTED = 20  # of the indices at fault


@dataclass(frozen=True, slots=True)
class EpochAudit:
    """What became of one epoch's samples.

    Attributes:
        epoch: from 0.
        ended: whether its last step is done.
        samples: of the data source; 0 while the epoch has not ended.
        owed: how many of them were to be used.
        used: how many different ones were.
        twice: indices used more than once.
        missing: indices not used, though all were owed.
        stray: indices that the source does not have.
    """

    epoch: int
    ended: bool
    samples: int
    owed: int
    used: int
    twice: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    stray: tuple[int, ...] = ()

    @property
    def fault(self) -> str | None:
        """What is wrong, or None."""
        found = [
            f"{name} {_some(indices)}"
            for name, indices in (
                ("used more than once:", self.twice),
                ("not used:", self.missing),
                ("not in the data:", self.stray),
            )
            if indices
        ]
        if self.ended and not found and self.used != self.owed:
            found = [f"{self.used} samples used, {self.owed} owed"]
        return "; ".join(found) or None


@dataclass(frozen=True, slots=True)
class Audit:
    """The verdict on a run.

    Attributes:
        epochs: in order; the last may be in progress.
        steps: that count.
        undone: steps of which a worker saw the end and that a later world did anew.
        workers: files read.
        torn: files whose last line was cut off by a kill.
    """

    epochs: tuple[EpochAudit, ...]
    steps: int
    undone: int
    workers: int
    torn: int

    @property
    def exact(self) -> bool:
        """Whether each sample owed was used once in each ended epoch, and none twice in the one in progress."""
        return bool(self.epochs) and all(e.fault is None for e in self.epochs)


@dataclass(slots=True)
class _World:
    """What the lines of one generation say."""

    begins: int | None = None
    epoch: int = 0
    fed: dict[int, list[NDArray[np.int64]]] = field(default_factory=lambda: defaultdict(list))
    epoch_of: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


def audit(folder: Path) -> Audit:
    """Read the workers' files in `folder` and judge them.

    Raises:
        ValueError: when a line other than a file's last is not what it should be; names it.
    """
    worlds: dict[int, _World] = defaultdict(_World)
    ended: dict[int, tuple[int, int]] = {}
    files = sorted(folder.glob("*.jsonl"))
    torn = 0
    for path in files:
        for line in _lines(path):
            if line is None:
                torn += 1
                continue
            _take(line, worlds, ended)
    kept, undone = _steps_that_count(worlds)
    used: dict[int, list[NDArray[np.int64]]] = defaultdict(list)
    for step, generation in kept.items():
        world = worlds[generation]
        if step in world.epoch_of:
            used[world.epoch_of[step]] += world.fed[step]
    epochs = sorted({*used, *ended})
    return Audit(
        epochs=tuple(_judge(epoch, used.get(epoch, []), ended.get(epoch)) for epoch in epochs),
        steps=len(kept),
        undone=undone,
        workers=len(files),
        torn=torn,
    )


def _lines(path: Path) -> Iterator[Mapping[str, Any] | None]:
    """Yield a file's lines; None for a last one that is cut off."""
    *whole, rest = path.read_bytes().split(b"\n")
    for number, line in enumerate(whole, 1):
        found = _parse(line)
        if not found:
            raise ValueError(f"{path}, line {number}: found {line[:60]!r}, expected a JSON object")
        yield found
    if rest:
        yield None


def _parse(line: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _take(line: Mapping[str, Any], worlds: dict[int, _World], ended: dict[int, tuple[int, int]]) -> None:
    match line:
        case {"world": generation, "epoch": epoch, "step": step}:
            worlds[generation].begins, worlds[generation].epoch = step, epoch
        case {"fed": generation, "epoch": epoch, "step": step, "indices": indices}:
            worlds[generation].fed[step].append(np.asarray(indices, np.int64))
            worlds[generation].epoch_of[step] = epoch
        case {"done": generation, "step": step}:
            worlds[generation].done.add(step)
        case {"ended": _, "epoch": epoch, "samples": samples, "owed": owed}:
            ended[epoch] = (samples, owed)
        case _:
            raise ValueError(f"found {line}, expected one of world, fed, done, ended")


def _steps_that_count(worlds: Mapping[int, _World]) -> tuple[dict[int, int], int]:
    """Return the world that each step counts of, and how many completed steps were undone."""
    kept: dict[int, int] = {}
    seen_done = 0
    order = sorted(worlds)
    for place, generation in enumerate(order):
        world = worlds[generation]
        begins = world.begins if world.begins is not None else 0
        kept = {step: of for step, of in kept.items() if step <= begins}
        following = worlds[order[place + 1]].begins if place + 1 < len(order) else None
        done = set(world.done)
        if following is not None:  # somebody held these steps, though it may have died before it could say so
            done |= {step for step in world.fed if step <= following}
        seen_done += len(done)
        kept |= dict.fromkeys(sorted(done), generation)
    return kept, seen_done - len(kept)


def _judge(epoch: int, used: Iterable[NDArray[np.int64]], ended: tuple[int, int] | None) -> EpochAudit:
    parts = [part for part in used if len(part)]
    indices, counts = np.unique(np.concatenate(parts) if parts else np.zeros(0, np.int64), return_counts=True)
    twice = tuple(indices[counts > 1].tolist())
    if ended is None:
        return EpochAudit(epoch, ended=False, samples=0, owed=0, used=len(indices), twice=twice)
    samples, owed = ended
    stray = tuple(indices[(indices < 0) | (indices >= samples)].tolist())
    missing: tuple[int, ...] = ()
    if owed == samples:
        missing = tuple(np.setdiff1d(np.arange(samples), indices).tolist())
    return EpochAudit(epoch, True, samples, owed, len(indices), twice, missing, stray)


def _some(indices: tuple[int, ...]) -> str:
    more = f" and {len(indices) - LISTED} more" if len(indices) > LISTED else ""
    return ", ".join(str(i) for i in indices[:LISTED]) + more


def tell(found: Audit) -> list[str]:
    """Return the verdict in words, a line each."""
    lines = []
    for e in found.epochs:
        state = f"{e.used} of {e.owed} samples" if e.ended else f"in progress, {e.used} samples so far"
        lines.append(f"epoch {e.epoch + 1}: {state}: {e.fault or ('each used once' if e.ended else 'none used twice')}")
    lines.append(
        f"{found.steps} steps, {found.undone} done again, from the records of {found.workers} worker processes"
        + (f", {found.torn} of them cut off by a kill" if found.torn else "")
    )
    lines.append("exactly once" if found.exact else "NOT exact")
    return lines
