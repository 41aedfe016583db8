"""How does the time to re-form a world grow with its size? `python -m benchmarks.scale [--json] [--write]`.

Worlds of 2, 8, 32 and 128 workers, eight a host, of which one is killed again and again. Real are the agents (a
process each, one standby a host), Horovod's elastic driver and its rendezvous; the workers
(`scale_worker`) load no TensorFlow, train nothing, and meet request by request as Horovod's core does.
Told is, of a kill, the time until all workers are in the new world, by phase: each ends when the last worker has

* detect: noticed that a peer is gone;
* place: its rank in the new world, the newcomer included, which a standby becomes;
* meet: a connection to every other;
* sync: agreed with all, and waited for all once.

Everything runs on this machine: how times *grow* is the figure, and what the launcher is asked for. On hosts of
their own agents and workers would not wait for each other's CPU; the launcher, one Python process, is the same.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.report import end_when_told, into_readme, machine, say, spread, tell
from benchmarks.scale_cluster import Cluster, Cpu, Mark, overflows

SIZES = (2, 8, 32, 128)
ROUNDS = 5
PHASES = ("detect", "place", "meet", "sync")
GLOO_TIMEOUT_S = 5.0  # the configuration's default


@dataclass(frozen=True, slots=True)
class Reformed:
    """What one loss cost.

    Attributes:
        phases_s: seconds, by phase.
        newcomer_s: until the newcomer was told to go.
        asked: requests that workers sent to their agents.
        served: requests that the launcher answered.
        turned_away: connections for which its queue of five had no room.
        barrier_s: the longest that a worker waited for a peer that was not there yet.
        cpu: seconds that were spent on it, by who spent them.
    """

    phases_s: dict[str, float]
    newcomer_s: float
    asked: int
    served: int
    turned_away: int
    barrier_s: float
    cpu: Cpu

    @property
    def total_s(self) -> float:
        return sum(self.phases_s.values())


def reformed(marks: Sequence[Mark], at: float, served: int, turned_away: int, cpu: Cpu) -> Reformed:
    """Return what a loss at time `at` cost, from what all members of the next world have told."""
    ends = (
        max(m.lost for m in marks),
        max(m.placed for m in marks),
        max(m.met for m in marks),
        max(m.done for m in marks),
    )
    phases, before = {}, at
    for name, end in zip(PHASES, ends, strict=True):
        phases[name] = max(0.0, end - before)
        before = max(before, end)
    newcomer = next(m for m in marks if not m.lost)
    longest = max(m.longest_wait_s for m in marks)
    return Reformed(phases, newcomer.told - at, sum(m.requests for m in marks), served, turned_away, longest, cpu)


def measure(size: int, slots: int, rounds: int, limit_s: float) -> list[Reformed]:
    """Form a world of that size and lose a worker, again and again.

    Raises:
        TimeoutError: when a world has not formed within `limit_s`.
    """
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="elastic-scale-") as temporary,
        Cluster(Path(temporary), size, slots, limit_s) as cluster,
    ):
        began = time.monotonic()
        marks = cluster.wait_world(1)
        say(f"{size} workers: the first world after {time.monotonic() - began:.1f} s")
        for round_ in range(rounds):
            victim = next(m for m in marks if m.rank == (size - 1, 0, size // 2)[round_ % 3])
            cluster.wait_standby(victim.host)
            generation = marks[0].generation + 1
            served, turned_away, spent = cluster.served, overflows(), cluster.cpu()
            at = time.monotonic()
            cluster.kill(victim)
            marks = cluster.wait_world(generation)
            away = overflows() - turned_away
            found.append(reformed(marks, at, cluster.served - served, away, cluster.cpu() - spent))
            parts = ", ".join(f"{name} {value:.3f}" for name, value in found[-1].phases_s.items())
            asked = f"{found[-1].served} requests, {away} turned away"
            say(f"{size} workers: {found[-1].total_s:.3f} s ({parts}), {asked}")
    return found


def figures(measured: dict[int, list[Reformed]], slots: int, failures: dict[int, str]) -> dict[str, Any]:
    """Return everything that is told; sizes as strings, as JSON has them."""
    rows = {
        str(size): {
            "total_s": spread([r.total_s for r in found]),
            "phases_s": {p: spread([r.phases_s[p] for r in found]) for p in PHASES},
            "newcomer_s": spread([r.newcomer_s for r in found]),
            "requests_of_workers": spread([r.asked for r in found]),
            "requests_to_launcher": spread([r.served for r in found]),
            "turned_away": spread([r.turned_away for r in found]),
            "longest_barrier_s": spread([r.barrier_s for r in found]),
            "cpu_s": {who: spread([getattr(r.cpu, who) for r in found]) for who in ("launcher", "agents", "workers")},
        }
        for size, found in measured.items()
    }
    curves = {
        "total": {s: statistics.median(r.total_s for r in found) for s, found in measured.items()},
        **{p: {s: statistics.median(r.phases_s[p] for r in found) for s, found in measured.items()} for p in PHASES},
        "requests to the launcher": {s: statistics.median(r.served for r in found) for s, found in measured.items()},
        "CPU of the launcher": {s: statistics.median(r.cpu.launcher for r in found) for s, found in measured.items()},
    }
    return {
        "machine": machine(),
        "slots_per_host": slots,
        "sizes": rows,
        "failures": {str(size): reason for size, reason in failures.items()},
        "grows_with": {name: exponents(curve) for name, curve in curves.items()},
    }


def exponents(curve: dict[int, float]) -> dict[str, Any]:
    """Return p of `t ~ N^p`: between neighbours, and of all sizes by least squares; None where there is none."""
    points = sorted((size, value) for size, value in curve.items() if value > 0)
    steps = {f"{a}-{b}": round(math.log(v / u) / math.log(b / a), 2) for (a, u), (b, v) in pairwise(points)}
    slope = None
    if len(points) > 1:
        xs, ys = [math.log(n) for n, _ in points], [math.log(v) for _, v in points]
        slope = round(statistics.linear_regression(xs, ys).slope, 2)
    return {"all": slope, "between": steps}


def table(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = [
        "| workers | a new world | detect | place | meet | sync | requests to launcher | turned away | its CPU |",
        f"| ---: | --- |{' ---: |' * 7}",
    ]
    for size, row in result["sizes"].items():
        total = row["total_s"]
        cells = [
            size,
            f"{total['median']:.2f} s ({total['min']:.2f} to {total['max']:.2f}, n = {total['n']})",
            *(f"{row['phases_s'][p]['median']:.3f} s" for p in PHASES),
            f"{row['requests_to_launcher']['median']:.0f}",
            f"{row['turned_away']['median']:.0f}",
            f"{row['cpu_s']['launcher']['median']:.2f} s",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"| {size} | {reason} | | | | | | | |" for size, reason in result["failures"].items()]
    return "\n".join([*lines, "", *observations(result)])


def observations(result: dict[str, Any]) -> list[str]:
    """Return what follows from the figures, a sentence each."""
    host, told = result["machine"], []
    for name, fit in result["grows_with"].items():
        if fit["all"] is None:
            continue
        steps = ", ".join(f"{p} from {between.replace('-', ' to ')}" for between, p in fit["between"].items())
        told.append(f"* {name}: grows with N^{fit['all']} ({steps})")
    if told:
        told = ["Exponents p of N^p, over all sizes and between neighbours:", "", *told, ""]
    for size, row in result["sizes"].items():
        waited = row["longest_barrier_s"]["max"]
        if waited > GLOO_TIMEOUT_S:
            told.append(
                f"With {size} workers one waited {waited:.1f} s for another that was still meeting the others: "
                f"more than the default `network.gloo_timeout_s` of {GLOO_TIMEOUT_S:.0f} s, which was raised for this."
            )
    hosts = f"{result['slots_per_host']} workers a host, all on one machine: {host['cpu']}, {host['cores']} cores"
    return [*told, f"{hosts}, {host['memory']}, {host['date']};", "`uv run python -m benchmarks.scale`."]


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="write the table into the README")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="of worlds")
    parser.add_argument("--slots", type=int, default=8, help="workers a host")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="losses of each size")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that a world may take to form")
    parser.add_argument("--from", dest="file", type=Path, help="measure nothing: tell what an earlier --json told")
    options = parser.parse_args()
    end_when_told()
    if options.file:
        result: dict[str, Any] = json.loads(options.file.read_text())
    else:
        measured, failures = {}, {}
        for size in [int(word) for word in options.sizes.split(",")]:
            try:
                measured[size] = measure(size, options.slots, options.rounds, options.limit)
            except TimeoutError as error:
                failures[size] = str(error)
                say(f"{size} workers: {error}")
        result = figures(measured, options.slots, failures)
    tell(result, as_json=options.json, table=table(result))
    if options.write:
        into_readme("scale", table(result))


if __name__ == "__main__":
    main()
