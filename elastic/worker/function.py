"""A function that `elastic.ray.run` was given, as a worker calls it."""

import pickle
import sys
from pathlib import Path

import cloudpickle

from elastic.filesystem import write_whole
from elastic.worker.context import current


def call(path: Path) -> None:
    """Call the pickled function; what it returns (on rank 0, where `elastic.fit` returns) is kept for the caller."""
    given = pickle.loads(path.read_bytes())
    sys.path += [folder for folder in given["path"] if folder not in sys.path]
    asked = cloudpickle.loads(given["call"])
    result = asked["function"](*asked["args"], **asked["kwargs"])
    run_dir = current().run_dir
    if run_dir is not None:
        write_whole(run_dir.result, cloudpickle.dumps(result))
