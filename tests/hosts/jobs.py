"""A job on hosts of a net, under stock `horovodrun` and the discovery script or under `elastic run`."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from discovery.place import Place
from elastic.chaos.net.hosts import Net
from elastic.chaos.scene import scene_of
from elastic.events import Record
from elastic.rundir import RunDir
from elastic.views.worlds import at_once
from tests.e2e.job import BIN, PATIENCE_S, ROOT, Job

GLOO_S = 3
COOLDOWN_S = (5, 10)
PACED = (
    "name: paced\nmodel: paced:model\ndata: paced:data\ncallbacks: paced:callbacks\nepochs: 100000\n"
    "batch: {per_worker: 32}\ncommit: {steps: 20}\ntensorboard: false\nworkers: {min: 1, max: 4}\n"
)


def write_paced(folder: Path) -> tuple[Path, dict[str, str]]:
    """Write a job of steps of 20 ms and a small model; return it, and the environment in which it is found."""
    (folder / "paced.py").write_text((ROOT / "tests" / "e2e" / "paced.py").read_text())
    job = folder / "paced.yaml"
    job.write_text(PACED)
    return job, os.environ | {"PYTHONPATH": str(folder), "PACED_SAMPLES": "20000"}


@dataclass
class OnHosts:
    """A job whose launcher runs on `h0`, which has no worker unless it is named."""

    net: Net
    job: Job
    place: Place

    @classmethod
    def start(
        cls,
        net: Net,
        folder: Path,
        *names: str,
        job: Path | None = None,
        sets: Sequence[str] = (),
        launcher: str = "horovodrun",
        gate: str = "{period_s: 0.5, timeout_s: 15.0}",
        discovery: str = "",
        env: Mapping[str, str] | None = None,
    ) -> "OnHosts":
        """Start it on these hosts; `job` is one of steps of 20 ms and a small model by default.

        Args:
            gate, discovery: what discovery is told of its gate and else, as YAML.
        """
        directory = RunDir(folder / "run")
        hosts_file = folder / "hosts"
        hosts_file.write_text("".join(f"{name}:1\n" for name in names))
        paced, paced_env = write_paced(folder)
        (folder / "runtime").mkdir()
        told = f"sources: [{{file: {hosts_file}}}]\ngate: {gate}\n{discovery}"
        (folder / "discovery.yaml").write_text(told)
        config = directory.discovery if launcher == "elastic" else folder / "discovery.yaml"
        environment = paced_env | {
            "PATH": f"{net.bin}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(folder / "runtime"),
            "ELASTIC_DISCOVERY": str(config),
            "ELASTIC_PYTHON": sys.executable,
            "ELASTIC_TEST_RUN": str(directory.path),
        }
        settings = [f"network.gloo_timeout_s={GLOO_S}", *sets]
        if launcher == "elastic":
            line = [str(BIN / "elastic"), "run"]
            settings += [f"discovery.sources=[{{file: {hosts_file}}}]", f"discovery.gate={gate}"]
            settings += [f"workers.start={len(names)}", f"network.cooldown_s={list(COOLDOWN_S)}"]
        else:
            line = [str(BIN / "horovodrun"), "-np", str(len(names)), "--min-np", "1", "--max-np", "4"]
            line += ["--blacklist-cooldown-range", *map(str, COOLDOWN_S)]
            line += ["--network-interfaces", net["h0"].interface]
            line += ["--host-discovery-script", str(ROOT / "discovery" / "discover_hosts.sh")]
            line += [str(BIN / "elastic"), "worker"]
        line += [str(job or paced), "--run-dir", str(directory.path)]
        line += [word for pair in settings for word in ("--set", pair)]
        with (folder / "output.txt").open("a") as output:
            process = net.run(
                "h0", line, cwd=folder, env=environment | (env or {}), stdout=output, stderr=subprocess.STDOUT
            )
        return cls(net, Job(directory, process, hosts_file), Place.of(config, environment))

    def name(self, *names: str) -> float:
        """Change the set of hosts; return when."""
        new = self.job.hosts_file.with_suffix(".new")
        new.write_text("".join(f"{name}:1\n" for name in names))
        new.rename(self.job.hosts_file)
        return time.time()

    def wait_stepping(self, size: int, after: float = 0.0) -> float:
        """Return when all of the first world of that size after that time had done a step."""
        world = self.job.wait(lambda r: r.event == "WorldFormed" and r.get("size") == size and r.time > after)
        generation = world.generation
        last = self.job.wait(lambda r: r.event == "FirstStepDone" and r.generation == generation, count=size)
        self.job.wait(lambda r: r.generation >= generation and int(r.get("step", 0)) >= int(last.get("step")) + 10)
        return last.time

    def wait_whole(self, size: int) -> None:
        """Return once the newest world is of that size and all its members train in it."""
        ends = time.monotonic() + PATIENCE_S
        while not ((world := scene_of(self.job.poll()).world).whole and world.size == size):
            assert self.job.process.poll() is None and time.monotonic() < ends, self.explain()  # noqa: PT018
            time.sleep(0.1)

    def worlds(self, after: float = 0.0) -> list[tuple[int, ...]]:
        """Return generation and size of each world since, in order."""
        formed = [r for r in self.job.of("WorldFormed") if r.time > after]
        return list(dict.fromkeys((r.generation, int(r.get("size"))) for r in formed))

    def step(self) -> int:
        """Return how far training has come."""
        return max(int(r.get("step", 0)) for r in self.job.poll())

    def train_on(self, for_s: float) -> int:
        """Let time pass; return how many steps were done in it."""
        step, ends = self.step(), time.monotonic() + for_s
        while time.monotonic() < ends:
            assert self.job.process.poll() is None, self.job.transcript()
            time.sleep(0.2)
            self.job.poll()
        return self.step() - step

    def split(self) -> list[tuple[Record, Record]]:
        """Return worlds that have trained at the same time."""
        return at_once(self.job.poll())

    def decisions(self) -> list[dict[str, str]]:
        """Return what discovery has decided."""
        path = self.place.decisions
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def explain(self) -> str:
        """Return what a failing test needs to show."""
        return "\n".join([*map(str, self.decisions()), self.job.transcript()])

    def close(self) -> None:
        """End whatever is left."""
        self.place.end_daemon(signal.SIGKILL)
        self.job.close()
