"""From a command line in a slot to a running agent."""

import json
import os
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from elastic.agent.agent import Agent
from elastic.agent.ahead import Ahead
from elastic.agent.announcements import Announcements
from elastic.agent.claim import Claimed, claim
from elastic.agent.loop import Loop
from elastic.agent.meeting import Meeting, meeting_of
from elastic.agent.preemption import preemption_of
from elastic.agent.process import WORKER, spawn
from elastic.agent.rendezvous import Rendezvous
from elastic.agent.settings import Settings
from elastic.agent.slot import Assignment, Slot, interface_for, read_slot, without_launcher
from elastic.agent.word import leave_word
from elastic.errors import HostError
from elastic.events import last_generation
from elastic.rundir import RunDir


def start_from_pool() -> int | None:
    """Look after the slot of this process's environment with a warm standby, if one waits here.

    The standby's keeper knows the job, so nothing is read or checked again: a growing world waits
    for this process. Returns None when there is no such standby.
    """
    slot = read_slot(os.environ)
    meeting = _meeting(slot) if slot.rendezvous else None
    found = claim(meeting) if meeting is not None else None
    if found is None:
        return None
    given = found.assignment
    return _look_after(Path(given["job"]), given["config"], RunDir(Path(given["run_dir"])), slot, meeting, found)


def start(job: Path, name: str, config: dict[str, Any], dump: str, run_dir: Path | None, worker: str = WORKER) -> int:
    """Look after the slot of this process's environment; return the exit code.

    Args:
        job: the YAML file or script.
        name: of the job.
        config: as resolved, in its plain form.
        dump: the same as YAML, kept in the run directory.
        run_dir: by default one named after the job and the launcher's rendezvous port, the same
            for all agents of a job.
        worker: the module that worker processes run.
    """
    slot = read_slot(os.environ)
    if run_dir is None:
        suffix = f"p{slot.rendezvous[1]}" if slot.rendezvous else f"{datetime.now():%Y%m%d-%H%M%S}"
        run_dir = Path("runs") / f"{name}-{suffix}"
    directory = RunDir(run_dir.resolve()).create()
    if job.suffix != ".py" and _has_reached_goal(directory, config):
        print(f"elastic: the run in {directory.path} has reached its goal; train anew with another --run-dir")
        return 0
    if not directory.config.exists():
        directory.config.write_text(dump, encoding="utf-8")
    leave_word(directory, slot, job.resolve())
    meeting = _meeting(slot)
    return _look_after(job.resolve(), config, directory, slot, meeting, None, worker)


def _look_after(
    job: Path,
    config: dict[str, Any],
    run_dir: RunDir,
    slot: Slot,
    meeting: Meeting | None,
    found: Claimed | None,
    worker: str = WORKER,
) -> int:
    settings = Settings.read(config)
    slot.env.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(settings.gloo_timeout_s))
    env = without_launcher(os.environ)
    if (interface := interface_for(slot, by_route=settings.by_route)) is not None:
        slot.env["HOROVOD_GLOO_IFACE"] = env["NCCL_SOCKET_IFNAME"] = interface
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    env["ELASTIC_LOCAL_WORKERS"] = str(slot.local_size)
    generation = last_generation(run_dir.events) if found is None else 0  # a newcomer hears it from the others
    assignment = Assignment(job, config, run_dir, slot, env, generation)
    rendezvous = ahead = announcements = None
    if slot.rendezvous is not None:
        name, launched = f"{slot.host}:{slot.local_rank}", os.environ.get("ELASTIC_ENTRY") != "rejoin"
        rendezvous = Rendezvous(*slot.rendezvous, settings.join_s, name, launched=launched)
        rendezvous.open()
        if not launched:
            rendezvous.abandon()  # peers may wait for the worker of the agent that this one replaces
        ahead = Ahead(rendezvous, settings.join_s)
        announcements = Announcements(rendezvous.register, rendezvous.own_address)
        announcements.open()
    preemption = preemption_of(settings.clouds, run_dir.notices, slot.host)
    agent = Agent(
        assignment,
        settings,
        Loop(),
        meeting,
        rendezvous,
        ahead,
        partial(spawn, module=worker),
        _summary_of(run_dir),
        preemption,
        announcements,
    )
    return agent.run(found.worker if found is not None else None)


def _meeting(slot: Slot) -> Meeting | None:
    job = "{}:{}".format(*slot.rendezvous) if slot.rendezvous else f"alone {os.getpid()}"
    meeting = meeting_of(job, slot.host)
    try:
        meeting.open()
    except (HostError, OSError) as error:
        print(f"elastic: no warm standbys on this host: {error}")
        return None
    return meeting


def _has_reached_goal(run_dir: RunDir, config: dict[str, Any]) -> bool:
    try:
        raw = json.loads(run_dir.summary.read_text(encoding="utf-8"))
        return bool(raw["status"] == "finished" and (raw["stopped_early"] or raw["epochs"] >= config["epochs"]))
    except (OSError, ValueError, KeyError):
        return False


def _summary_of(run_dir: RunDir) -> Callable[[], None]:
    def summarise() -> None:
        from elastic.views.summary import write

        try:
            write(run_dir)
        except OSError as error:
            print(f"elastic: no summary.json: {error}")

    return summarise
