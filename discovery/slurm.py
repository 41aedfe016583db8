"""The nodes of a Slurm job, from `squeue` and `scontrol`.

`squeue` says whether the job runs and on which nodes, `scontrol show hostnames` writes them out, and
`scontrol show node` says how each of them is. A node that drains or fails takes no more workers.
"""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from discovery.hosts import Host, Hosts, LeftOut, SourceError, host
from discovery.source import output_of

_STATE = re.compile(r"\bState=(\S+)")
_NODE = re.compile(r"\bNodeName=(\S+)")
_GPUS = re.compile(r"gpu(?::[\w.-]+)*:(\d+)")
_RUNS = ("RUNNING", "COMPLETING")
_USABLE = frozenset({"IDLE", "ALLOCATED", "MIXED", "COMPLETING"})
_HARMLESS = frozenset({"CLOUD", "POWERED_UP", "PLANNED", "RESERVED", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})


@dataclass(frozen=True, slots=True)
class Slurm:
    """Asks Slurm for a job's nodes.

    Args:
        job: its number; empty takes `SLURM_JOB_ID`.
        slots: workers a node; None takes the GPUs of each node that the job has, or `SLURM_NTASKS_PER_NODE`, or 1.
    """

    job: str = ""
    slots: int | None = None
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    period_s: float = 5.0

    @property
    def name(self) -> str:
        return f"slurm job {self._job or '?'}"

    def find(self, timeout_s: float) -> Hosts:
        """Return the job's nodes that are in order."""
        if not self._job:
            raise SourceError("there is no SLURM_JOB_ID here; name the job: slurm: {job: NUMBER}")
        ends = time.monotonic() + timeout_s
        told = self._call(ends, "squeue", "--noheader", "--jobs", self._job, "--format", "%T|%N|%b").strip()
        state, nodes, per_node = [*told.splitlines()[0].split("|"), "", "", ""][:3] if told else ("unknown", "", "")
        if state not in _RUNS or not nodes:
            return Hosts((), (LeftOut(f"job {self._job}", f"its state is {state}, expected RUNNING"),))
        names = self._call(ends, "scontrol", "show", "hostnames", nodes).split()
        states = self._states(self._call(ends, "scontrol", "show", "node", nodes, "--oneliner"))
        slots = self.slots or _count(per_node) or _number(self.env.get("SLURM_NTASKS_PER_NODE", "")) or 1
        hosts, left_out = [], []
        for name in names:
            why = _unusable(states.get(name, ""))
            found: Host | str = why or host(name, slots)
            if isinstance(found, Host):
                hosts.append(found)
            else:
                left_out.append(LeftOut(name, found))
        return Hosts(tuple(hosts), tuple(left_out))

    def close(self) -> None:
        """Nothing is open."""

    @property
    def _job(self) -> str:
        return self.job or self.env.get("SLURM_JOB_ID", "")

    def _call(self, ends: float, *line: str) -> str:
        return output_of(line, max(0.1, ends - time.monotonic()), self.env)

    @staticmethod
    def _states(text: str) -> dict[str, str]:
        found = {}
        for line in text.splitlines():
            node, state = _NODE.search(line), _STATE.search(line)
            if node and state:
                found[node[1]] = state[1]
        return found


def _unusable(state: str) -> str:
    """Return what is wrong with a node; its state is such as `MIXED+DRAIN` or `DOWN*`."""
    if not state:
        return "Slurm says nothing of this node"
    if state.endswith("*"):
        return f"the node does not answer to Slurm: {state}"
    words = frozenset(state.upper().rstrip("~#!%$@^-").split("+"))
    if not words & _USABLE or words - _USABLE - _HARMLESS:
        return f"the node's state is {state}"
    return ""


def _count(per_node: str) -> int:
    """Return the GPUs a node of `gres/gpu:4` or `gpu:a100:4`."""
    found = _GPUS.search(per_node)
    return int(found[1]) if found else 0


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
