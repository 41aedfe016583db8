"""`elastic chaos` on the main job: the shipped plans, a fault that is not survived, Ctrl-C."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from elastic.events import Record, Tail
from tests.e2e.conftest import MNIST
from tests.e2e.job import BIN, PATIENCE_S, ROOT

PLANS = ROOT / "configs" / "chaos"


class Chaos:
    """A running `elastic chaos`, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.process: subprocess.Popen[str] | None = None
        self.records: list[Record] = []
        self._tail = Tail(self.run_dir / "events.jsonl")

    def start(self, plan: Path, *options: str) -> None:
        line = [str(BIN / "elastic"), "chaos", str(plan), str(MNIST), "--run-dir", str(self.run_dir), *options]
        with (self.folder / "output.txt").open("w") as output:
            self.process = subprocess.Popen(
                line, cwd=self.folder, stdout=output, stderr=subprocess.STDOUT, text=True, start_new_session=True
            )

    def output(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")

    def wait(self, what: Callable[[Record], bool], within_s: float = PATIENCE_S) -> Record:
        assert self.process is not None
        deadline = time.monotonic() + within_s
        while True:
            ended = self.process.poll() is not None
            self.records += self._tail.new()
            if found := [r for r in self.records if what(r)]:
                return found[0]
            assert time.monotonic() < deadline, self.output()
            assert not ended, self.output()
            time.sleep(0.02)

    def finish(self, within_s: float) -> int:
        assert self.process is not None
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.output()) from None

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run_dir / "chaos.json").read_text())
        return found

    def left(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and str(self.run_dir) in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
        for process in self.left():
            process.kill()


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Chaos]:
    found = Chaos(tmp_path)
    yield found
    found.close()


def survive(chaos: Chaos, plan: str, within_s: float, *options: str) -> dict[str, Any]:
    chaos.start(PLANS / f"{plan}.yaml", *options)
    code = chaos.finish(within_s)
    found = chaos.report()
    assert code == 0, chaos.output()
    assert found["passed"], chaos.output()
    assert found["exact"], chaos.output()
    assert [v for v in found["verdicts"] if v["named"] is False] == [], chaos.output()
    assert not chaos.left()
    return found


@pytest.mark.chaos
@pytest.mark.timeout(400)  # a minute, on a machine that has nothing else to do
def test_the_job_lives_through_one_fault_of_each_sort(chaos: Chaos) -> None:
    found = survive(chaos, "smoke", 380.0)
    assert {v["outcome"] for v in found["verdicts"]} == {"survived"}, chaos.output()
    assert sum(v["steps_lost"] for v in found["verdicts"]) == 0, chaos.output()


@pytest.mark.chaos
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("plan", ["kills", "freeze", "hosts", "disk"])
def test_the_job_lives_through_the_shipped_plans(chaos: Chaos, plan: str) -> None:
    survive(chaos, plan, 1400.0)


@pytest.mark.chaos
@pytest.mark.timeout(1500)
def test_the_job_lives_through_ten_minutes_of_storm(chaos: Chaos) -> None:
    survive(chaos, "storm", 1400.0)


@pytest.mark.chaos
def test_a_fault_that_is_not_survived_is_exit_code_1_and_says_why(chaos: Chaos, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("job: {epochs: 1000}\nfaults: [{kind: kill, target: rank 1, step: 20}]\n")
    chaos.start(plan, "--set", "restart.crash.limit=0", "--set", "job.max_restarts=0", "--set", "standby.size=0")
    assert chaos.finish(100.0) == 1, chaos.output()
    (verdict,) = chaos.report()["verdicts"]
    assert verdict["outcome"] == "not survived"
    assert "1 ends by crash within 60 s, last: killed by SIGKILL" in verdict["reason"]
    assert "NOT as it should be: fault 1" in chaos.output()


@pytest.mark.chaos
def test_ctrl_c_undoes_what_was_done(chaos: Chaos, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("job: {epochs: 1000}\nfaults: [{kind: stop, target: driver, for_s: 600, step: 10}]\n")
    chaos.start(plan)
    (driver,) = chaos.wait(lambda r: r.event == "FaultInjected").get("pids")
    assert psutil.Process(driver).status() == psutil.STATUS_STOPPED
    assert chaos.process is not None
    os.kill(chaos.process.pid, signal.SIGINT)
    chaos.wait(lambda r: r.event == "FaultUndone")
    assert chaos.finish(60.0) == 130, chaos.output()
    assert not chaos.left()
    assert chaos.report()["verdicts"][0]["outcome"] == "not reached"
