"""A Python function as a job on Ray: `elastic.ray.run(train, ...)`."""

import json
import pickle
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import cloudpickle

from elastic.errors import ConfigError, ExitCode, JobError
from elastic.events import Record, read
from elastic.jobfile import load
from elastic.launch.run import run_job
from elastic.rundir import RunDir, fresh

_SCRIPT = """\
# Calls the function that `elastic.ray.run` was given.
from pathlib import Path

from elastic.worker.function import call

call(Path(__file__).with_name("function.pkl"))
"""


def run(
    function: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    run_dir: Path | str | None = None,
) -> Any:
    """Run a function that calls `elastic.fit` in every worker of a job on Ray; return what it returned on rank 0.

    Started like `elastic run`: on the cluster that `options["ray"]` names, else the one that this process is
    connected to (or an actor of), else the one that RAY_ADDRESS names, else on one of its own. Workers come
    and go, and the launcher starts again from the newest checkpoint. As in a script, what comes before
    `elastic.fit` runs in every worker and standby, what comes after it on rank 0.

    Args:
        function: anything that pickles by value (cloudpickle), or by a module that the workers find.
        args, kwargs: what it is called with.
        options: the job's configuration as in a YAML file, such as
            `{"workers": {"max": 4}, "ray": {"cpus": 2}}`.
        run_dir: where the run keeps its files; an unfinished run there goes on.

    Raises:
        ConfigError: when something must be changed before the job can start.
        JobError: when it has failed or was stopped, with the first root cause, its rank and host.
    """
    name = getattr(function, "__name__", "function").strip("<>_") or "function"
    directory = (RunDir(Path(run_dir).resolve()) if run_dir is not None else fresh(name, datetime.now())).create()
    job = directory.path / "function.py"
    job.write_text(_SCRIPT, encoding="utf-8")
    call = {"function": function, "args": tuple(args), "kwargs": dict(kwargs or {})}
    job.with_name("function.pkl").write_bytes(pickle.dumps({"path": sys.path, "call": cloudpickle.dumps(call)}))
    directory.result.unlink(missing_ok=True)
    chosen = {"name": name, **(options or {}), "launcher": "ray"}
    sets = [f"{key}={json.dumps(value)}" for key, value in chosen.items()]
    code = run_job(job, load(job, sets), directory.path, sets, None)
    if code == ExitCode.CONFIG:
        raise ConfigError(_why(directory))
    if code != ExitCode.GOAL_REACHED:
        raise JobError(_why(directory))
    return cloudpickle.loads(directory.result.read_bytes())


def _why(directory: RunDir) -> str:
    """Return the first root cause of the last start, and whose it was."""
    records = read(directory.events)
    starts = [i for i, r in enumerate(records) if r.event == "JobStarted"]
    last = records[starts[-1] :] if starts else records
    end = _first(reversed(last), "JobFailed", "JobStopped")
    failed = _first(last, "WorkerFailed")
    reason = str(end.get("reason")) if end is not None else "it has told nothing"
    where = f"\n{failed.get('traceback')}\n(worker {failed.host}[{failed.slot}], rank {failed.rank})" if failed else ""
    return f"{reason}; see {directory.path}{where}"


def _first(records: Any, *events: str) -> Record | None:
    return next((r for r in records if r.event in events), None)
