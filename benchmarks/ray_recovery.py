"""What losing and adding workers and nodes costs on a Ray cluster of several nodes on this machine.

    uv run python -m benchmarks.ray_recovery [--json] [--write] [--rounds N] [--only kill,node,checkpoint,train]

kill         SIGKILL of a worker process, ranks in turn -> the next step of all
node         SIGKILL of a node's raylet -> the next step of the rest, detection apart; then a node is
             added: how long the incumbents stand still
checkpoint   a durable checkpoint every 5 steps: share of the time for which training stood still
train        Ray Train v2 (elastic, PyTorch) under the same faults; skipped without torch
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL
from typing import Any

from benchmarks import faults, ray_train
from benchmarks.report import into_readme, machine, say, spread, tell
from tests.e2e import job as jobs
from tests.e2e.ray.nodes import Nodes, RayNode

PARTS = ("kill", "node", "checkpoint", "train")
MNIST_RAY = jobs.ROOT / "configs" / "mnist_ray.yaml"
CHECKPOINT_STEPS = 5
WINDOW_S = 20.0


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """Seconds from a raylet's death to the survivor's notice, to the new world, to its first step."""

    detected_s: float
    formed_s: float
    total_s: float


@dataclass
class Measured:
    """What was seen."""

    kills: list[faults.Recovery] = field(default_factory=list)
    losses: list[NodeLoss] = field(default_factory=list)
    joins: list[float] = field(default_factory=list)
    blocked: dict[str, float] = field(default_factory=dict)
    train: ray_train.Measured = field(default_factory=ray_train.Measured)


def start(folder: Path, nodes: Nodes, *sets: str) -> jobs.Job:
    """Start our job on the cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {"PYTHONPATH": str(jobs.ROOT), "RAY_ADDRESS": nodes.address}
    return jobs.start(folder, MNIST_RAY, *faults.SETS, "model=benchmarks.models:cnn", *sets, env=env)


def kill_workers(folder: Path, nodes: Nodes, rounds: int, m: Measured) -> None:
    """Kill workers of one job in turn; each finds a warm standby on its node."""
    job = start(folder, nodes)
    try:
        ready = {r.host: r.time for r in job.of("StandbyReady")}
        for round_ in range(rounds):
            rank = (round_ + 1) % 2
            job.wait_stepping(job_generation(job), workers=2)
            host = next(r.host for r in reversed(job.of("WorldFormed")) if r.rank == rank)
            since = ready.get(host, 0.0)
            ready[host] = job.wait(
                lambda r, host=host, since=since: r.event == "StandbyReady" and r.host == host and r.time > since
            ).time
            faults.wait_quiet(job)
            m.kills.append(faults.lose(job, rank, SIGKILL))
            say(f"kill: {m.kills[-1].total_s:.3f} s")
    finally:
        job.close()


def job_generation(job: jobs.Job) -> int:
    """Return the newest world once there is one."""
    job.wait_world(1)
    return job.generation()


def lose_nodes(folder: Path, nodes: Nodes, pair: list[RayNode], rounds: int, m: Measured) -> None:
    """Kill the second node's raylet and add another node, again and again."""
    job = start(folder, nodes)
    try:
        for _ in range(rounds):
            generation = job_generation(job)
            job.wait_stepping(generation, workers=2)
            faults.wait_quiet(job)
            at = time.time()
            nodes.kill(pair.pop())
            first = job.wait(lambda r, g=generation: r.event == "FirstStepDone" and r.generation == g + 1)
            formed = next(r for r in job.of("WorldFormed") if r.generation == generation + 1)
            noticed = next((r for r in job.of("CollectiveFailed") if r.time > at), formed)
            m.losses.append(NodeLoss(noticed.time - at, formed.time - at, first.time - at))
            say(f"node lost: {m.losses[-1]}")
            pair.append(nodes.add())
            job.wait_stepping(generation + 2, workers=2)
            firsts = [r for r in job.of("FirstStepDone") if r.generation == generation + 2]
            m.joins.append(max(float(r.get("pause_s")) for r in firsts))
            say(f"node added: {m.joins[-1]:.3f} s")
    finally:
        job.close()


def checkpoint_often(folder: Path, nodes: Nodes, m: Measured) -> None:
    """Write a durable checkpoint every few steps; see for how long training stood still for that."""
    job = start(folder, nodes, f"checkpoint.every_steps={CHECKPOINT_STEPS}")
    try:
        job.wait_stepping(1, workers=2)
        faults.wait_quiet(job)
        begin = time.time()
        while time.time() - begin < WINDOW_S:
            job.poll()
            time.sleep(0.1)
        written = [r for r in job.of("CheckpointWritten") if r.time > begin]
        steps = [int(r.get("step")) for r in job.of("Progressed") if r.time > begin]
        m.blocked = {
            "share": sum(float(r.get("blocked_s")) for r in written) / WINDOW_S,
            "checkpoints": len(written),
            "steps_between": (steps[-1] - steps[0]) / max(1, len(written)),
            "written_s": statistics.median(float(r.get("took_s")) for r in written),
        }
        say(f"checkpoints: {m.blocked}")
    finally:
        job.close()


def measure(rounds: int, parts: Collection[str]) -> Measured:
    """Measure on one cluster of two nodes of one CPU each."""
    m = Measured()
    with tempfile.TemporaryDirectory() as temporary:
        with cluster() as (nodes, pair):
            if "kill" in parts:
                kill_workers(Path(temporary) / "kill", nodes, rounds, m)
            if "node" in parts:
                lose_nodes(Path(temporary) / "node", nodes, pair, rounds, m)
            if "checkpoint" in parts:
                checkpoint_often(Path(temporary) / "checkpoint", nodes, m)
            if "train" in parts:
                m.train = ray_train.measure(Path(temporary) / "train", nodes, pair, max(1, rounds // 4))
        if "train" in parts and not ray_train.missing():
            with cluster() as (fresh, _):
                ray_train.measure_reports(Path(temporary) / "reports", fresh, m.train)
    return m


@contextmanager
def cluster() -> Iterator[tuple[Nodes, list[RayNode]]]:
    """Run a cluster of two nodes of one CPU each."""
    nodes = Nodes()
    try:
        yield nodes, [nodes.add(), nodes.add()]
    finally:
        nodes.close()


def figures(m: Measured) -> dict[str, Any]:
    """Return the figures, with what they must reach."""
    return {
        "machine": machine(),
        "kill_s": {"ours": spread([r.total_s for r in m.kills]), "must": 0.8, "ray_train": spread(m.train.kills_s)},
        "kill_phases_s": {p: spread([r.phases_s[p] for r in m.kills]) for p in faults.PHASES} if m.kills else {},
        "node_lost_s": {
            "ours": spread([loss.total_s for loss in m.losses]),
            "detected": spread([loss.detected_s for loss in m.losses]),
            "formed": spread([loss.formed_s for loss in m.losses]),
            "must": 8.0,
            "ray_train": spread(m.train.losses_s),
        },
        "node_added_s": {"ours": spread(m.joins), "must": 0.8, "ray_train": spread(m.train.joins_s)},
        "checkpoint_blocked_share": {"ours": m.blocked, "must": 0.01, "ray_train": m.train.blocked_share},
        "ray_train": m.train.note,
    }


def table(result: dict[str, Any]) -> str:
    """Return the figures as a table for people."""

    def cell(found: dict[str, Any]) -> str:
        return f"{found['median']:.2f} ({found['min']:.2f} to {found['max']:.2f})" if found.get("n") else "-"

    share = result["checkpoint_blocked_share"]
    rows = [
        ("worker killed -> all train again, s", result["kill_s"]),
        ("node killed -> the rest trains again, s", result["node_lost_s"]),
        ("node added: incumbents stand still, s", result["node_added_s"]),
    ]
    lines = ["| | ours | must | Ray Train v2 |", "| --- | --- | --- | --- |"]
    lines += [f"| {name} | {cell(r['ours'])} | <= {r['must']} | {cell(r['ray_train'])} |" for name, r in rows]
    ours = f"{share['ours']['share']:.2%}" if share["ours"] else "-"
    theirs = f"{share['ray_train']:.0%}" if share["ray_train"] is not None else "-"
    lines.append(f"| checkpoint every {CHECKPOINT_STEPS} steps: time blocked | {ours} | <= 1% | {theirs} |")
    host = result["machine"]
    told = f"Ray Train v2: {result['ray_train']}."
    made = f"{host['cpu']}, {host['cores']} cores, {host['memory']}, {host['date']};"
    return "\n".join([*lines, "", told, made, "`uv run --group torch python -m benchmarks.ray_recovery`."])


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="write the table into the README")
    parser.add_argument("--rounds", type=int, default=10, help="of each fault")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    options = parser.parse_args()
    parts = options.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))}; expected some of {','.join(PARTS)}")
    result = figures(measure(options.rounds, parts))
    tell(result, as_json=options.json, table=table(result))
    if options.write:
        into_readme("ray", table(result))


if __name__ == "__main__":
    main()
