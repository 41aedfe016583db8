"""What a survivor leaves with its agent before it enters the next world.

Horovod's core ends the process when a peer dies while a world forms; a survivor would then take
the only copy of the state with it. So before it leaves a world it writes its state into memory
that its agent holds, and its successor in the slot finds it there. The memory is given back after
the first step of the new world. An agent that ends before that leaves it as a file in the run
directory (see `agent.remains`), where the next start finds it.
"""

import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_HEAD = struct.Struct("=8sQQ")  # a mark, written last; bytes of the objects; bytes of the variables
_MARK = b"elastic1"


class Stash:
    """The memory of one slot.

    Args:
        path: of the agent's memory file.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def save(self, objects: bytes, variables: Sequence[Any]) -> None:
        """Keep serialised objects and the values of tf.Variables; what was kept before is gone."""
        values = [v.numpy().tobytes() for v in variables]
        try:
            with open(self._path, "r+b", buffering=0) as file:  # noqa: PTH123 - not a path of the file system
                file.truncate(0)
                file.write(_HEAD.pack(b"", 0, 0))
                file.writelines((objects, *values))
                file.seek(0)
                file.write(_HEAD.pack(_MARK, len(objects), sum(map(len, values))))
        except OSError:
            return  # without it a second failure costs steps, no more

    def load(self) -> tuple[bytes, bytes] | None:
        """Return the objects and the variables' bytes, or None if nothing whole is kept."""
        try:
            with open(self._path, "rb", buffering=0) as file:  # noqa: PTH123
                head = file.read(_HEAD.size)
                mark, objects, variables = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0, 0)
                if mark != _MARK or os.fstat(file.fileno()).st_size != _HEAD.size + objects + variables:
                    return None
                return file.read(objects), file.read(variables)
        except OSError:
            return None

    def clear(self) -> None:
        """Give the memory back."""
        try:
            os.truncate(self._path, 0)
        except OSError:
            return


class Remains:
    """What all slots' workers have put by: this slot's memory, and the files that agents have left.

    Args:
        stash: of this slot; None without an agent.
        folder: of the run directory; None without one.
    """

    def __init__(self, stash: Stash | None, folder: Path | None) -> None:
        self._stash = stash
        self._folder = folder

    def load(self) -> list[tuple[bytes, bytes]]:
        """Return what is whole of it: objects and variables' bytes."""
        files = sorted(self._folder.iterdir()) if self._folder is not None and self._folder.is_dir() else []
        stashes = [self._stash, *(Stash(str(path)) for path in files)]
        return [found for stash in stashes if stash is not None and (found := stash.load()) is not None]

    def clear(self, *, files: bool) -> None:
        """Give the memory back and, on one worker of the world, the disk space."""
        if self._stash is not None:
            self._stash.clear()
        if files and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def assign_bytes(variables: Sequence[Any], data: bytes) -> None:
    """Give tf.Variables the values that follow each other in `data`.

    Raises:
        ValueError: when their sizes do not add up; nothing is assigned then.
    """
    size = sum(v.dtype.size * int(np.prod(v.shape)) for v in variables)
    if size != len(data):
        raise ValueError(f"found {len(data)} bytes for variables of {size}: not the same model")
    offset = 0
    for variable in variables:
        count = int(np.prod(variable.shape))
        values = np.frombuffer(data, variable.dtype.as_numpy_dtype, count, offset)
        variable.assign(values.reshape(variable.shape))
        offset += values.nbytes
