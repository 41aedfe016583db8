"""From a command line in a slot to a running agent."""

import os
from datetime import datetime
from pathlib import Path

from elastic.agent.agent import Assignment, start
from elastic.agent.slot import read_slot, without_launcher
from elastic.config import Config, dump
from elastic.rundir import RunDir


def run_agent(job: Path, config: Config, run_dir: Path | None) -> int:
    """Look after the slot of this process's environment; return the exit code.

    Args:
        job: the YAML file or script.
        config: as resolved.
        run_dir: by default one named after the job and the launcher's rendezvous port, the same
            for all agents of a job.
    """
    slot = read_slot(os.environ)
    if run_dir is None:
        suffix = f"p{slot.rendezvous.rpartition(':')[2]}" if slot.rendezvous else f"{datetime.now():%Y%m%d-%H%M%S}"
        run_dir = Path("runs") / f"{config.name}-{suffix}"
    directory = RunDir(run_dir.resolve()).create()
    if not directory.config.exists():
        directory.config.write_text(dump(config), encoding="utf-8")
    env = without_launcher(os.environ)
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    slot.env.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(config.network.gloo_timeout_s))
    return start(Assignment(job.resolve(), config.model_dump(mode="json", by_alias=True), directory, slot, env))
