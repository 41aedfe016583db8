"""The command line of the driver on a Ray cluster; this module loads no Ray."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path


def command(job: Path, run_dir: Path, sets: Sequence[str], extra: Path | None) -> list[str]:
    """Return the command line of the launcher."""
    line = [sys.executable, "-m", "elastic.launch.ray.main", str(job.resolve()), "--run-dir", str(run_dir)]
    for pair in sets:
        line += ["--set", pair]
    return line + (["--config", str(extra.resolve())] if extra else [])


def environment() -> dict[str, str]:
    """Return the environment of the launcher: a cluster that this process is part of, or connected to, is the job's."""
    ray = sys.modules.get("ray")
    joined = {"RAY_ADDRESS": ray.get_runtime_context().gcs_address} if ray is not None and ray.is_initialized() else {}
    return os.environ | joined | {"PYTHONUNBUFFERED": "1"}
