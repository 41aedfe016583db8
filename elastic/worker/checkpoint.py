"""Durable copies of the training state in the run directory.

A checkpoint is a directory `step-000000120` with

    variables.bin   the variables' bytes, one after the other
    objects.pkl     progress and callback state
    manifest.json   step, epoch, names, shapes, dtypes, digests, world size, versions

It is written under a temporary name, every file fsynced, then renamed: a directory with its final
name is whole, unless the disk lied, which the digests tell. Reading takes the newest valid one and
says what was wrong with newer ones. `objects.pkl` is a pickle: load only your own runs.
"""

import hashlib
import json
import os
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

FORMAT = 1


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

    def write(self, snapshot: Snapshot) -> tuple[Path, int]:
        """Make a snapshot durable; returns its path and size in bytes.

        Raises:
            OSError: when the disk refuses; nothing half-written is left then.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        final = self.folder / f"step-{snapshot.progress.step:09d}"
        temporary = self.folder / f".{final.name}.{os.getpid()}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            size = _write_files(temporary, snapshot)
            if final.exists():  # of an earlier try at this step
                shutil.rmtree(final)
            temporary.rename(final)
            _sync_directory(self.folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._prune()
        return final, size

    def paths(self) -> list[Path]:
        """Return the checkpoints, newest first."""
        return sorted(self.folder.glob("step-*"), reverse=True)

    def newest_valid(self, on_rejected: Callable[[Path, str], None]) -> Path | None:
        """Return the newest checkpoint that is whole; `on_rejected` hears about newer ones that are not."""
        for path in self.paths():
            if (reason := flaw(path)) is None:
                return path
            on_rejected(path, reason)
        return None

    def _prune(self) -> None:
        for path in self.paths()[self.keep :]:
            shutil.rmtree(path, ignore_errors=True)
        for leftover in self.folder.glob(".step-*.tmp"):
            if not _alive(leftover):
                shutil.rmtree(leftover, ignore_errors=True)


def step_of(path: Path) -> int:
    """Return the step that a checkpoint's name tells."""
    return int(path.name.partition("-")[2])


def flaw(path: Path) -> str | None:
    """Return what is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            return f"format {manifest['format']}, expected {FORMAT}"
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


def _write_files(folder: Path, snapshot: Snapshot) -> int:
    digests = {
        "variables.bin": _write(folder / "variables.bin", snapshot.arrays),
        "objects.pkl": _write(folder / "objects.pkl", [np.frombuffer(dumps(snapshot.objects), np.uint8)]),
    }
    manifest = {
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
    text = json.dumps(manifest, indent=1).encode()
    _write(folder / "manifest.json", [np.frombuffer(text, np.uint8)])
    _sync_directory(folder)
    return sum(file.stat().st_size for file in folder.iterdir())


def _write(path: Path, arrays: Sequence[NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for array in arrays:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            file.write(data.data)
            digest.update(data.data)
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
