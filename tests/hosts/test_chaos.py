"""`elastic chaos` on hosts of its own."""

import json
import subprocess
from pathlib import Path

import pytest

from elastic.chaos.net.hosts import missing_switch
from tests.e2e.job import BIN
from tests.hosts.jobs import write_paced

pytestmark = [pytest.mark.chaos, pytest.mark.e2e, pytest.mark.timeout(280), pytest.mark.usefixtures("buildable")]

PLAN = """
hosts: 2
settle_s: 120
job: {network: {cooldown_s: [5, 10], gloo_timeout_s: 3}, discovery: {hold_s: 0, gate: {period_s: 1, timeout_s: 15}}}
faults:
  - {kind: net_delay, for_s: 4}
  - {kind: partition, target: host h2, for_s: 8}
"""


def test_a_job_lives_through_a_plan_of_network_faults(tmp_path: Path) -> None:
    if why := missing_switch():
        pytest.skip(why)
    (tmp_path / "plan.yaml").write_text(PLAN)
    job, env = write_paced(tmp_path)
    line = [str(BIN / "elastic"), "chaos", "plan.yaml", str(job), "--run-dir", "run", "--set", "workers.start=2"]
    with subprocess.Popen(line, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as running:
        output, _ = running.communicate()
    assert running.returncode == 0, output
    found = json.loads((tmp_path / "run" / "chaos.json").read_text())
    assert [v["outcome"] for v in found["verdicts"]] == ["survived", "survived"]
    assert found["verdicts"][0]["recovery"] is None, "a delay has cost a world"
    assert found["verdicts"][1]["places"] == ["h2[0]"]
    assert found["exact"]
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"el{running.pid}" not in spaces
