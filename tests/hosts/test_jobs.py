"""A job over ssh on several hosts, under stock `horovodrun` and the discovery script."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elastic.chaos.net.hosts import Net
from elastic.rundir import RunDir
from tests.e2e.conftest import MNIST
from tests.e2e.job import BIN, ROOT, Job

pytestmark = [pytest.mark.chaos, pytest.mark.e2e, pytest.mark.usefixtures("buildable")]

GLOO_S = 3
SETS = ("epochs=1000", "batch.per_worker=32", "commit.steps=20", f"network.gloo_timeout_s={GLOO_S}")


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., tuple[Net, Job]]]:
    """Begins a job on hosts of a net; the launcher runs on `h0`, which has no worker."""
    nets: list[Net] = []
    jobs: list[Job] = []

    def begin(*names: str, of: int, sets: tuple[str, ...] = ()) -> tuple[Net, Job]:
        net = Net(tmp_path / "net", of + 1)
        nets.append(net)
        net.open()
        directory = RunDir(tmp_path / "run")
        hosts_file = tmp_path / "hosts"
        hosts_file.write_text("".join(f"{name}:1\n" for name in names))
        discovery = tmp_path / "discovery.yaml"
        discovery.write_text(f"sources: [{{file: {hosts_file}}}]\ngate: {{period_s: 0.5, timeout_s: 15.0}}\n")
        (tmp_path / "runtime").mkdir()
        env = os.environ | {
            "PATH": f"{net.bin}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(tmp_path / "runtime"),
            "ELASTIC_DISCOVERY": str(discovery),
            "ELASTIC_PYTHON": sys.executable,
            "ELASTIC_TEST_RUN": str(directory.path),
        }
        line = [str(BIN / "horovodrun"), "-np", str(len(names)), "--min-np", "1", "--max-np", str(of)]
        line += ["--blacklist-cooldown-range", "5", "30", "--network-interfaces", "eth0"]
        line += ["--host-discovery-script", str(ROOT / "discovery" / "discover_hosts.sh")]
        line += [str(BIN / "elastic"), "worker", str(MNIST), "--run-dir", str(directory.path)]
        line += [word for pair in (*SETS, *sets) for word in ("--set", pair)]
        with (tmp_path / "output.txt").open("a") as output:
            process = net.run("h0", line, cwd=tmp_path, env=env, stdout=output, stderr=subprocess.STDOUT)
        job = Job(directory, process, hosts_file)
        jobs.append(job)
        job.wait_stepping(generation=1, workers=len(names))
        job.wait_step(30)
        return net, job

    yield begin
    for job in jobs:
        job.close()
    for net in nets:
        net.close()


def hosts(job: Job, *names: str) -> float:
    """Change the set of hosts; return when."""
    new = job.hosts_file.with_suffix(".new")
    new.write_text("".join(f"{name}:1\n" for name in names))
    new.rename(job.hosts_file)
    return time.time()


def wait_stepping(job: Job, size: int, after: float) -> float:
    """Return when all of the first world of that size after that time had done a step."""
    world = job.wait(lambda r: r.event == "WorldFormed" and r.get("size") == size and r.time > after)
    last = job.wait(lambda r: r.event == "FirstStepDone" and r.generation == world.generation, count=size)
    return last.time


@pytest.mark.timeout(300)
def test_a_host_joins_another_leaves_and_a_third_loses_its_power(begin: Callable[..., tuple[Net, Job]]) -> None:
    net, job = begin("h1", "h2", of=3)
    at = hosts(job, "h1", "h2", "h3")
    wait_stepping(job, 3, at)
    assert {r.host for r in job.of("WorldFormed") if r.get("size") == 3} == {"h1", "h2", "h3"}
    assert not job.of("WorkerLost"), job.transcript()

    at = hosts(job, "h1", "h3")
    wait_stepping(job, 2, at)
    left = job.wait(lambda r: r.event == "WorkerLeft" and r.host == "h2")
    assert left.get("reason") == "removed"
    assert not job.of("WorkerLost"), job.transcript()

    step = max(int(r.get("step", 0)) for r in job.poll())
    at = time.time()
    net.power_off("h3")
    done = wait_stepping(job, 1, at)
    assert done - at <= GLOO_S + 2.0, job.transcript()
    world = next(r for r in job.of("WorldFormed") if r.time > at)
    assert world.host == "h1"
    assert world.get("step") >= step - 1
    assert not job.of("CheckpointLoaded"), job.transcript()
