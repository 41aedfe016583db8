"""Deterministic mode: the same bits from any number of workers, whatever happens to them."""

import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.job import Job

Start = Callable[..., Job]
SCHEDULES = int(os.environ.get("ELASTIC_TEST_SCHEDULES", "30"))
JOB = """
name: determined
model: determined:model
data: determined:data
callbacks: determined:callbacks
epochs: 4
batch: {global: 32, micro: 5}
deterministic: true
shards: 4
tensorboard: false
commit: {steps: 7}
"""


@dataclass(frozen=True)
class Outcome:
    """What must not depend on the world."""

    weights: str
    metrics: dict[str, float]
    steps: int
    variables: bytes


@pytest.fixture
def determined(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).with_name("determined.py"), tmp_path / "determined.py")
    config = tmp_path / "determined.yaml"
    config.write_text(JOB)
    return config


def outcome(job: Job) -> Outcome:
    """Return what a job came to, once it has ended."""
    assert job.finish() == 0, job.transcript()
    summary = json.loads(job.run_dir.summary.read_text())
    assert summary["samples_seen"] == summary["samples_owed"] or summary["stopped_early"], job.transcript()
    last = max(r.get("step") for r in job.of("WeightsHashed"))
    digests = {r.get("sha256") for r in job.of("WeightsHashed") if r.get("step") == last}
    assert len(digests) == 1, job.transcript()
    newest = max(job.run_dir.checkpoints.glob("step-*"))
    return Outcome(digests.pop(), summary["metrics"], summary["steps"], (newest / "variables.bin").read_bytes())


def workers(count: int) -> tuple[str, ...]:
    return (f"workers.min={count}", f"workers.max={count}", "standby.size=0")


def test_one_two_and_three_workers_come_to_the_same_bits(start: Start, determined: Path, tmp_path: Path) -> None:
    found = [
        outcome(start(determined, "epochs=2", *workers(count), run_dir=tmp_path / f"run{count}")) for count in (1, 2, 3)
    ]
    assert found[0] == found[1]
    assert found[0] == found[2]
    assert found[0].metrics.keys() >= {"loss", "val_loss", "val_accuracy"}


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Outcome]:
    """Return where the outcome of an undisturbed run is kept for the module's other tests."""
    return {}


def act(job: Job, chance: random.Random) -> None:
    """Do one thing to a job: kill workers, ask one to leave, or change the hosts."""
    kind = chance.choice(["kill one", "kill one", "kill others", "kill all", "ask one to leave", "change hosts"])
    if kind == "change hosts":
        hosts = [f"localhost:{chance.randint(1, 2)}", f"127.0.0.1:{chance.randint(0, 2)}"]
        new = job.hosts_file.with_suffix(".new")
        new.write_text("".join(f"{host}\n" for host in hosts if not host.endswith(":0")))
        new.replace(job.hosts_file)
        return
    live = {r.rank: r.pid for r in job.of("WorldFormed") if r.generation == job.generation()}
    victims = {"kill others": sorted(live)[1:], "kill all": sorted(live)}.get(kind, [chance.choice(sorted(live))])
    for rank in victims:
        with suppress(ProcessLookupError):
            os.kill(live[rank], signal.SIGTERM if kind == "ask one to leave" else signal.SIGKILL)


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_no_schedule_of_kills_joins_and_leaves_changes_a_bit(
    start: Start, determined: Path, tmp_path: Path, seed: int, undisturbed: dict[str, Any]
) -> None:
    if not undisturbed:
        undisturbed["alone"] = outcome(start(determined, *workers(1), run_dir=tmp_path / "alone"))
    chance = random.Random(seed)
    job = start(
        determined,
        "workers.min=1",
        "workers.max=4",
        launcher="horovodrun",
        hosts=("localhost:2",),
        options=("-np", "2", "--min-np", "1", "--max-np", "4"),
        env={"DETERMINED_PAUSE_S": "0.05"},
    )
    total = undisturbed["alone"].steps
    for step in sorted(chance.sample(range(1, total - 5), chance.randint(2, 4))):
        job.wait_step(step)
        act(job, chance)
    assert outcome(job) == undisturbed["alone"]
