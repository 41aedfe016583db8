"""A driver whose files the nodes do not see: what happens there reaches it all the same."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from elastic.events import read
from elastic.rundir import RunDir
from tests.e2e.job import ROOT
from tests.e2e.ray.nodes import Nodes

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a file system of the driver's own"),
]

SCRIPT = """
import shutil
import time
import urllib.request

import keras
import numpy as np

import elastic


def train(metrics):
    print("hello from a node")
    x = np.zeros((256, 4), "float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    elastic.fit(model, x, x[:, :1], epochs=2, batch_size=32)
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        told = urllib.request.urlopen(metrics).read().decode()
        if "elastic_world_size_workers 2.0" in told and "elastic_step 16.0" in told:
            return "back from the node"
        time.sleep(0.1)
    return told


if __name__ == "__main__":
    options = {"workers": {"max": 2}, "standby": {"size": 0}, "metrics": {"port": PORT}}
    print("returned:", elastic.ray.run(train, ["http://127.0.0.1:PORT/metrics"], options=options, run_dir="driver/run"))
    shutil.copytree("driver/run", "kept")
"""


def test_facts_metrics_prints_and_results_reach_a_driver_that_shares_no_files_with_the_nodes(
    nodes: Nodes, tmp_path: Path
) -> None:
    host = nodes.add(cpus=2).host
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (tmp_path / "script.py").write_text(SCRIPT.replace("PORT", str(port)))
    (tmp_path / "driver").mkdir()
    line = f"mount -t tmpfs none driver && exec {sys.executable} script.py"
    env = os.environ | {"RAY_ADDRESS": nodes.address, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", line],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "returned: back from the node" in told
    assert told.count("hello from a node") == 1
    log = (tmp_path / "kept" / "logs" / "launcher.log").read_text()
    assert set(re.findall(r"\[(\d) (\S+)\]<stdout>:hello from a node", log)) == {
        ("0", f"{host}[0]"),
        ("1", f"{host}[1]"),
    }
    facts = [record.event for record in read(RunDir(tmp_path / "kept").events)]
    assert facts.count("AgentStarted") == 2, facts
    assert facts.count("JobFinished") == 1, facts
    assert any((tmp_path / "driver" / "run" / "checkpoints").iterdir()), "the nodes keep their own"
