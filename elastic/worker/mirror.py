"""Checkpoints on storage that every host reaches, such as `s3://bucket/folder` or `file:///mnt/nfs/folder`.

A checkpoint is written to the run directory first and copied from there. Object stores cannot
rename, so `manifest.json`, without which nothing is a checkpoint, is copied last; and it holds the
digests of the rest. Which storage is meant, and its options, is fsspec's affair: a scheme beyond
`file` and `memory` needs its package (`s3fs` for s3, `gcsfs` for gs) on every host.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec

from elastic.config import Checkpoint
from elastic.errors import ConfigError
from elastic.rundir import RunDir
from elastic.worker.checkpoint import CheckpointStore, Snapshot, flaw, step_and_epoch

LAST = "manifest.json"


class MirroredStore(CheckpointStore):
    """The checkpoints of one run, here and there.

    Args:
        folder, keep: as for every store; the other side keeps as many.
        uri: the folder there; its last part is this run's alone.

    Raises:
        ConfigError: when fsspec knows no such storage, or lacks its package.
    """

    def __init__(self, folder: Path, keep: int, uri: str) -> None:
        super().__init__(folder, keep)
        try:
            self._there, self._root = fsspec.core.url_to_fs(uri)
        except (ValueError, ImportError) as error:
            raise ConfigError(f"checkpoint.uri: {uri}: {error}") from None
        self._uri = uri

    def write(self, snapshot: Snapshot) -> tuple[Path, int]:
        """Make a snapshot durable here and there; returns its path here and its size in bytes.

        Raises:
            OSError: when either side refuses.
        """
        path, size = super().write(snapshot)
        self._reach(lambda: self._copy(path))
        return path, size

    def newest_valid(self, on_rejected: Callable[[Path, str], None]) -> Path | None:
        """Return the newest whole checkpoint of both sides, fetched if it is only there."""
        here = super().newest_valid(on_rejected)
        for name in self._reach(self._names):
            if here is not None and step_and_epoch(Path(name)) <= step_and_epoch(here):
                break
            path = self._reach(lambda name=name: self._fetch(name))  # type: ignore[misc]
            if (reason := flaw(path)) is None:
                return self._accept(path, name)
            on_rejected(Path(f"{self._uri}/{name}"), reason)
            shutil.rmtree(path, ignore_errors=True)
        return here

    def _copy(self, path: Path) -> None:
        target = f"{self._root}/{path.name}"
        names = sorted((file.name for file in path.iterdir()), key=lambda name: name == LAST)
        self._there.makedirs(target, exist_ok=True)
        for name in names:
            self._there.put_file(str(path / name), f"{target}/{name}")
        for old in self._names()[self.keep :]:
            self._there.rm_file(f"{self._root}/{old}/{LAST}")
            self._there.rm(f"{self._root}/{old}", recursive=True)

    def _names(self) -> list[str]:
        """Return the names of the checkpoints there, newest first."""
        self._there.invalidate_cache()
        if not self._there.exists(self._root):
            return []
        found = (Path(str(path)).name for path in self._there.ls(self._root, detail=False))
        whole = [
            name for name in found if name.startswith("step-") and self._there.exists(f"{self._root}/{name}/{LAST}")
        ]
        return sorted(whole, key=lambda name: step_and_epoch(Path(name)), reverse=True)

    def _fetch(self, name: str) -> Path:
        path = self.folder / f".{name}.fetched.{os.getpid()}.tmp"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        for file in self._there.ls(f"{self._root}/{name}", detail=False):
            self._there.get_file(file, str(path / Path(str(file)).name))
        return path

    def _accept(self, path: Path, name: str) -> Path:
        final = self.folder / name
        if final.exists() and flaw(final) is None:  # another worker of this host was faster
            shutil.rmtree(path, ignore_errors=True)
            return final
        shutil.rmtree(final, ignore_errors=True)
        path.rename(final)
        return final

    def _reach(self, action: Callable[[], Any]) -> Any:
        """Do something there; whatever the storage's library raises is an `OSError`."""
        try:
            return action()
        except OSError:
            raise
        except Exception as error:
            raise OSError(f"{self._uri}: {type(error).__name__}: {error}") from error


def store_of(run_dir: RunDir, options: Checkpoint) -> CheckpointStore | None:
    """Return the store of a run: in its directory, and in a folder of its name at `uri` if that is given."""
    if not options.enabled:
        return None
    if options.uri is None:
        return CheckpointStore(run_dir.checkpoints, options.keep)
    return MirroredStore(run_dir.checkpoints, options.keep, f"{options.uri.rstrip('/')}/{run_dir.path.name}")
