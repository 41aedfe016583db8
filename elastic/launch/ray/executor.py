"""Horovod's executor for Ray, on a cluster that it does not own alone.

`horovod.ray.ElasticRayExecutor` with these differences, each a method or a small part named after it:

* hosts are nodes, counted by what is free (`watch`), not addresses counted by what they have;
* the interface is that of the node's own address, so no probing actor on each node;
* the blocklist's cooldown reaches Horovod's driver;
* an actor hosts an agent, gets as long to start as the configuration says, and is replaced (`slots`);
* a slot that found no room takes nothing but itself out of the world;
* everything that was started is ended, however the job ends.
"""

import base64
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import ray
from horovod.ray import ElasticRayExecutor
from horovod.runner.common.util.timeout import TimeoutException
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.gloo_run import create_slot_env_vars
from horovod.runner.http.http_server import RendezvousServer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from elastic.agent.policy import Budget
from elastic.config import Config
from elastic.errors import ExitCode, JobError
from elastic.launch.ray import cluster
from elastic.launch.ray.actor import Slot, Spec
from elastic.launch.ray.driver import Driver
from elastic.launch.ray.link import Links, answers
from elastic.launch.ray.nodes import Plan
from elastic.launch.ray.policy import visible
from elastic.launch.ray.slots import Assigned, Slots, Times
from elastic.launch.ray.watch import Watch
from elastic.rundir import RunDir

GPUS_KNOWN_S = 10.0  # how long a slot that is to see its node's GPUs waits for the others to name theirs


class Executor(ElasticRayExecutor):  # type: ignore[misc]
    """Runs one job on the cluster that this process is connected to.

    Args:
        config: the job's.
        run_dir: where facts go.
        job, extra: the job's file, and the configuration beside a script.
        sets: the command line's overrides.
    """

    def __init__(self, config: Config, run_dir: RunDir, job: Path, extra: Path | None, sets: Sequence[str]) -> None:
        slot, workers, network = config.ray, config.workers, config.network
        settings = self.create_settings(
            min_num_proc=workers.min, max_num_proc=workers.max, elastic_timeout=network.start_timeout_s, verbose=0
        )
        super().__init__(settings, use_gpu=slot.gpus > 0, override_discovery=False)
        takes = {"CPU": slot.cpus, "GPU": slot.gpus} | slot.resources
        self._plan = Plan({name: amount for name, amount in takes.items() if amount > 0}, workers.max, slot.placement)
        self._config, self._run_dir, self._job, self._extra, self._sets = config, run_dir, job, extra, sets
        self._watch = Watch(self._plan, cluster.nodes, cluster.ask_for if slot.autoscale else None)
        self._links = Links(ray.util.get_node_ip_address())
        self._mark = run_dir.path / f".driver-{self._links.token[:8]}"
        files = (job, extra, run_dir.path / "function.pkl")
        self._files = {str(path): path.read_bytes() for path in files if path is not None and path.exists()}
        self._gpus: dict[str, dict[int, tuple[str, ...]]] = {}
        self._lock = threading.Lock()
        self._known = threading.Condition()
        self._stopped = False

    def start(self) -> None:
        """Start what all workers need: the rendezvous, the driver, the watch over the cluster."""
        for old in self._run_dir.path.glob(".driver-*"):
            old.unlink(missing_ok=True)
        self._mark.touch()
        self._links.open()
        self._watch.start()
        self.rendezvous = RendezvousServer(self.settings.verbose)
        self.driver = Driver(
            rendezvous=self.rendezvous,
            discovery=self._watch,
            min_num_proc=self.settings.min_num_proc,
            max_num_proc=self.settings.max_num_proc,
            timeout=self.settings.elastic_timeout,
            cooldown_range=self._config.network.cooldown_s,
            verbose=self.settings.verbose,
        )
        port = self.rendezvous.start(create_rendezvous_handler(self.driver))
        self.run_env_vars = {
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": self._links.at[0],
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_ELASTIC": "1",
            "ELASTIC_LAUNCHER": "elastic run",
        }
        if interfaces := self._config.network.interfaces:
            self.run_env_vars |= {"HOROVOD_GLOO_IFACE": interfaces.split(",")[0], "NCCL_SOCKET_IFNAME": interfaces}

    def run(self) -> int:
        """Run the job to its end; return 0 if a slot has reached the goal.

        Raises:
            JobError: when there are too few slots to start with.
        """
        restart = self._config.restart.crash
        slots = Slots(
            self,
            self._links,
            Times(self._config.network.start_timeout_s, self._config.drain_s),
            Budget(restart.limit, restart.window_s),
        )
        codes: list[int] = []

        def look_after(slot: Assigned, events: Sequence[threading.Event]) -> tuple[int, float]:
            code, at = slots.look_after(slot, events)
            codes.append(code)
            return code, at

        if self._stopped:
            return ExitCode.TERMINATED
        self._start_workers(look_after)
        error = self.driver.get_results().error_message
        if error is not None:
            print(error, file=sys.stderr)
        return ExitCode.GOAL_REACHED if ExitCode.GOAL_REACHED in codes else ExitCode.FAILED

    def _start_workers(self, look_after: Callable[..., tuple[int, float]]) -> None:
        first, within = self._config.workers.first, self._config.network.start_timeout_s
        try:
            self.driver.start(first, look_after)
        except RuntimeError:
            if not self._stopped:  # `stop` ends the wait for slots in this way
                raise
        except TimeoutException:
            found = sum(self._watch.find_available_hosts_and_slots().values())
            raise JobError(
                f"found room for {found} of {first} slots within {within} s; free some of the cluster, "
                "give it more time (network.start_timeout_s), or start with less (workers.start)"
            ) from None

    def stop(self) -> None:
        """Let all workers finish their step and leave; `run` returns when they have."""
        self._stopped = True
        if self.driver is not None:
            self.driver.finish()

    def close(self) -> None:
        """End everything that `start` has started."""
        if self.driver is not None:
            self.driver.finish()
            self.driver.stop()
            self.rendezvous._httpd.server_close()
        self._links.close()
        self._mark.unlink(missing_ok=True)
        self._watch.stop()  # last: it asks Ray, which does not answer for a minute when the head is gone

    # What slots need (`slots.Cluster`).

    def place(self, slot: Assigned, key: str, replaces: int) -> cluster.Placed:
        """Ask for an actor on the slot's node."""
        node = self._watch.node(slot.hostname)
        if node is None:
            return cluster.Placed(None, f"{slot.hostname} is no node of the cluster any more")
        options = {
            "name": f"{self._config.name}/{key}",
            "num_cpus": self._plan.takes.get("CPU", 0),
            "num_gpus": self._plan.takes.get("GPU", 0),
            "resources": {k: v for k, v in self._plan.takes.items() if k not in ("CPU", "GPU")},
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node.id, soft=False),
            "max_restarts": 0,
        }
        spec = Spec(
            name=f"{slot.hostname}[{slot.local_rank}]",
            driver=self._links.at,
            token=self._links.token,
            key=key,
            job=str(self._job),
            extra=str(self._extra) if self._extra is not None else None,
            options=tuple(word for pair in self._sets for word in ("--set", pair)),
            cwd=os.getcwd(),  # noqa: PTH109 - a plain string
            run_dir=str(self._run_dir.path),
            mark=self._mark.name,
            files=self._files,
            replaces=replaces,
        )
        actor = ray.remote(Slot).options(**options).remote(spec)
        return cluster.Placed(actor)

    def env(self, slot: Assigned, gpus: Sequence[str], *, again: bool) -> dict[str, str]:
        """Return the environment of the slot's agent, which has these GPUs; `again`: the slot had one before."""
        env: dict[str, str] = self.run_env_vars | create_slot_env_vars(slot)
        env["ELASTIC_ENTRY"] = "rejoin" if again else "launched"
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = self._visible(slot, tuple(gpus))
        return env

    def _visible(self, slot: Assigned, gpus: tuple[str, ...]) -> str:
        seen = self._config.ray.gpus_seen
        with self._known:
            known = self._gpus.setdefault(slot.hostname, {})
            known[slot.local_rank] = gpus
            self._known.notify_all()
            if seen == "node":
                self._known.wait_for(lambda: len(known) >= slot.local_size, GPUS_KNOWN_S)
            return visible(dict(known), slot.local_rank, seen)

    def node_answers(self, host: str) -> bool:
        """Tell whether a node's raylet is there."""
        node = self._watch.node(host)
        return node is not None and answers(node.address, node.port)

    def is_draining(self, host: str) -> bool:
        """Tell whether a node is about to go."""
        node = self._watch.node(host)
        return node is not None and node.draining

    def is_counted(self, host: str, local_rank: int) -> bool:
        """Tell whether the driver holds the slot for ready in a round that is not complete."""
        counted: bool = self.driver.is_counted(host, local_rank)
        return counted

    def took(self, slot: Assigned) -> None:
        self._watch.take(slot.hostname, 1)

    def settled(self, slot: Assigned) -> None:
        self._watch.take(slot.hostname, 0)

    def left(self, slot: Assigned) -> None:
        self._watch.take(slot.hostname, -1)
        with self._known:
            self._gpus.get(slot.hostname, {}).pop(slot.local_rank, None)

    def lost(self, host: str) -> None:
        self._watch.lost(host)

    def no_room(self, slot: Assigned) -> None:
        """Count the host's slots without this one and those after it, for a while."""
        self._watch.full(slot.hostname, slot.local_rank)
        self.driver.no_room(slot.hostname, slot.local_rank)

    def mark_round(self) -> None:
        """Leave the mark that agents look for (see `agent.rendezvous`) in place of an agent that is gone."""
        server = self.rendezvous._httpd
        with server.cache_lock:
            server.cache.setdefault("elastic", {}).setdefault("mark", b"abandoned")

    def printed(self, slot: Assigned, line: str, stream: str) -> None:
        """Print a line as `horovodrun` does, with the rank that the slot has by now, and where that is."""
        now = self.driver.get_slot_info(slot.hostname, slot.local_rank).rank
        rank = now if now >= 0 else slot.rank  # one that is no part of the world any more
        with self._lock:
            print(f"[{rank} {slot.hostname}[{slot.local_rank}]]<{stream}>:{line}", flush=True)

    def facts(self, lines: Sequence[str]) -> None:
        """Take over facts of a host that does not share the run directory."""
        with self._lock, self._run_dir.events.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def result(self, slot: Assigned, result: str) -> None:
        """Take over what a function has returned on a host that does not share the run directory."""
        self._run_dir.result.write_bytes(base64.b64decode(result))
