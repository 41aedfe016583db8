"""Durable copies of the training state in the run directory.

A checkpoint is a directory `step-000000120-epoch-00003` (epoch 3 in progress, 120 steps done in all;
the end of an epoch's last step and the start of the next epoch are two states of one step) with

    variables.bin   the variables' bytes, one after the other
    objects.pkl     progress and callback state
    manifest.json   step, epoch, names, shapes, dtypes, world size, versions; the digests of the
                    other two files, and one of all that the manifest says itself

It is written under a temporary name, every file fsynced, then renamed: a directory with its final
name is whole, unless the disk lied, which the digests tell. A whole one is never written again; a
damaged one gives its name to the new one. Reading takes the newest valid one and says what was
wrong with newer ones. `objects.pkl` is a pickle: load only your own runs.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - registers bfloat16 and float8 with numpy
import numpy as np
from numpy.typing import NDArray

from elastic.progress import Progress
from elastic.worker.collective import dumps, loads
from elastic.worker.spare import Spare

FORMAT = 2
_CHUNK = 1 << 20  # bytes

_FILES = frozenset({"variables.bin", "objects.pkl", "manifest.json"})
_NAME = re.compile(r"step-(\d+)-epoch-(\d+)")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at one step, in host memory.

    Attributes:
        names, arrays: the variables in the state's order.
        objects: anything that pickles.
    """

    progress: Progress
    names: tuple[str, ...]
    arrays: tuple[NDArray[Any], ...]
    objects: dict[str, Any]
    world_size: int
    versions: dict[str, str]


class CheckpointStore:
    """The checkpoints of one run.

    Args:
        folder: made when the first one is written.
        keep: how many stay.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep
        self._spare = Spare(folder, _FILES)

    def write(self, snapshot: Snapshot) -> tuple[Path, int]:
        """Make a snapshot durable, unless it is already; returns its path and size in bytes.

        Raises:
            OSError: when the disk refuses; nothing half-written is left then.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        final = self.folder / f"step-{snapshot.progress.step:09d}-epoch-{snapshot.progress.epoch:05d}"
        if final.exists() and flaw(final) is None:
            return final, _size(final)
        temporary, damaged = (self.folder / f".{final.name}.{kind}.{os.getpid()}.tmp" for kind in ("new", "damaged"))
        try:
            for leftover in (temporary, damaged):
                shutil.rmtree(leftover, ignore_errors=True)
            self._spare.become(temporary)
            _write_files(temporary, snapshot)
            if final.exists():
                final.rename(damaged)
            temporary.rename(final)
            _sync_directory(self.folder)
        finally:
            for leftover in (temporary, damaged):
                shutil.rmtree(leftover, ignore_errors=True)
        self._prune(final)
        return final, _size(final)

    def tidy(self) -> None:
        """Leave nothing in the folder but checkpoints: none will be written soon."""
        self._spare.drop()

    def paths(self) -> list[Path]:
        """Return the checkpoints, newest first."""
        found = (path for path in self.folder.glob("step-*") if _NAME.fullmatch(path.name))
        return sorted(found, key=step_and_epoch, reverse=True)

    def newest_valid(self, on_rejected: Callable[[Path, str], None]) -> Path | None:
        """Return the newest checkpoint that is whole; `on_rejected` hears about newer ones that are not."""
        for path in self.paths():
            if (reason := flaw(path)) is None:
                return path
            on_rejected(path, reason)
        return None

    def _prune(self, written: Path) -> None:
        for path in self.paths()[self.keep :]:
            if path != written:  # those before it may be damaged
                self._spare.keep(path)
        for leftover in self.folder.glob(".step-*.tmp"):
            if not _alive(leftover):
                shutil.rmtree(leftover, ignore_errors=True)


def step_of(path: Path) -> int:
    """Return the step that a checkpoint's name tells."""
    return step_and_epoch(path)[0]


def step_and_epoch(path: Path) -> tuple[int, int]:
    """Return the step and the epoch in progress that a checkpoint's name tells; the newer one's are larger.

    Raises:
        ValueError: when it is no checkpoint's name.
    """
    found = _NAME.fullmatch(path.name)
    if found is None:
        raise ValueError(f"found {path.name}, expected a name such as step-000000120-epoch-00003")
    return int(found[1]), int(found[2])


def flaw(path: Path) -> str | None:
    """Return what is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            return f"format {manifest['format']}, expected {FORMAT}"
        if (says := _digest_of(manifest)) != manifest["digest"]:
            return f"manifest.json has digest {says[:12]}, expected {manifest['digest'][:12]}"
        for name, expected in manifest["sha256"].items():
            with (path / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != expected:
                return (
                    f"{name} is {(path / name).stat().st_size} bytes with digest {found[:12]}, expected {expected[:12]}"
                )
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def read(path: Path) -> Snapshot:
    """Return the snapshot of a checkpoint that has no flaw."""
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    data = np.memmap(path / "variables.bin", np.uint8, "r") if manifest["variables"] else np.zeros(0, np.uint8)
    arrays, offset = [], 0
    for variable in manifest["variables"]:
        dtype, shape = np.dtype(variable["dtype"]), tuple(variable["shape"])
        length = dtype.itemsize * int(np.prod(shape))
        arrays.append(np.frombuffer(bytes(data[offset : offset + length]), dtype).reshape(shape))
        offset += length
    return Snapshot(
        progress=Progress(**manifest["progress"]),
        names=tuple(v["name"] for v in manifest["variables"]),
        arrays=tuple(arrays),
        objects=loads((path / "objects.pkl").read_bytes()),
        world_size=manifest["world_size"],
        versions=manifest["versions"],
    )


def _write_files(folder: Path, snapshot: Snapshot) -> None:
    digests = {
        "variables.bin": _write(folder / "variables.bin", snapshot.arrays),
        "objects.pkl": _write(folder / "objects.pkl", [np.frombuffer(dumps(snapshot.objects), np.uint8)]),
    }
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "step": snapshot.progress.step,
        "epoch": snapshot.progress.epoch,
        "progress": asdict(snapshot.progress),
        "world_size": snapshot.world_size,
        "versions": snapshot.versions,
        "sha256": digests,
        "variables": [
            {"name": n, "shape": list(a.shape), "dtype": a.dtype.name}
            for n, a in zip(snapshot.names, snapshot.arrays, strict=True)
        ],
    }
    text = json.dumps({**manifest, "digest": _digest_of(manifest)}, indent=1).encode()
    _write(folder / "manifest.json", [np.frombuffer(text, np.uint8)])
    _sync_directory(folder)


def _digest_of(manifest: dict[str, Any]) -> str:
    """Return the digest of what a manifest says beside its digest, however it is laid out."""
    rest = {name: value for name, value in manifest.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _write(path: Path, arrays: Sequence[NDArray[Any]]) -> str:
    """Write a file, over what is there; return its digest."""
    digest = hashlib.sha256()
    with path.open("r+b" if path.exists() else "wb") as file:
        for array in arrays:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            for at in range(0, data.size, _CHUNK):  # what was just written is hashed while caches hold it
                file.write(data[at : at + _CHUNK].data)
                digest.update(data[at : at + _CHUNK].data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _sync_directory(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _alive(leftover: Path) -> bool:
    return Path(f"/proc/{leftover.name.split('.')[-2]}").exists()
