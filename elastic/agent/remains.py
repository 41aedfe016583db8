"""What a slot's last worker had put by, kept for the next start when the agent ends.

A worker that loses its world puts its state by with its agent (see `worker.stash`). If the agent is
then told to stop, or its launcher gives up, before a new world has done a step, that memory is the
newest state of the job.
"""

import os
from pathlib import Path

_CHUNK = 1 << 24


def keep(stash: int, path: Path) -> bool:
    """Move the memory to a file, which appears under its name only when it is whole; False if there is nothing.

    Raises:
        OSError: when the disk refuses; nothing is left then.
    """
    size = os.fstat(stash).st_size
    if not size:
        return False
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with new.open("wb", buffering=0) as file:
            done = 0
            while done < size:
                sent = os.sendfile(file.fileno(), stash, done, min(_CHUNK, size - done))
                if sent == 0:
                    raise OSError(f"found {done} bytes, expected {size}")
                done += sent
            os.fsync(file.fileno())
        new.rename(path)
        os.truncate(stash, 0)
    finally:
        new.unlink(missing_ok=True)
    return True
