"""`elastic warm`: a host has a worker ready before the job has a slot there."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from elastic.chaos.net.hosts import Net
from tests.e2e.job import BIN
from tests.hosts.jobs import OnHosts, write_paced

pytestmark = [pytest.mark.chaos, pytest.mark.e2e, pytest.mark.timeout(280)]


def test_a_host_that_was_warmed_joins_with_its_standby_and_its_worker_outlives_the_warming(
    build: Callable[..., Net], begin: Callable[..., OnHosts], tmp_path: Path
) -> None:
    net = build(3)
    run = begin(net, "h1")
    _, env = write_paced(tmp_path)  # as the job's
    line = [str(BIN / "elastic"), "warm", str(run.job.run_dir.path)]
    with (tmp_path / "warm.txt").open("w") as output:
        warming = net.run("h2", line, env=env, stdout=output, stderr=output)
    ready = run.job.wait(lambda r: r.event == "StandbyReady" and r.host == "h2")
    check = [*line, "--check"]
    assert net.run("h2", check, env=env, stdout=subprocess.DEVNULL).wait(30) == 0
    assert net.run("h0", check, env=env, stdout=subprocess.DEVNULL).wait(30) == 1
    at = run.name("h1", "h2")
    joined = run.wait_stepping(2, at)
    started = next(r for r in run.job.of("WorkerStarted") if r.host == "h2")
    assert (started.get("source"), started.get("worker_pid")) == ("standby", ready.get("standby_pid"))
    assert joined - at < 10.0, run.explain()
    before = time.time()
    warming.terminate()
    assert warming.wait(10) == 0
    assert run.train_on(5.0) > 20
    assert not [r for r in run.job.poll() if r.time > before and r.event in {"WorkerLost", "CollectiveFailed"}]


def test_nothing_is_warmed_for_a_run_that_is_over(build: Callable[..., Net], tmp_path: Path) -> None:
    net = build(1)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text("model: elastic.examples.mnist:model\ndata: bundled\n")
    (run_dir / "summary.json").write_text('{"status": "finished"}\n')
    warming = net.run("h0", [str(BIN / "elastic"), "warm", str(run_dir)], stdout=subprocess.DEVNULL)
    assert warming.wait(60) == 0
