"""How long until training goes on at full strength? `python -m benchmarks.recovery [--json] [--write]`.

On one host with two workers, the MNIST CNN at batch 32 a worker, under stock `horovodrun`:

* kill: SIGKILL of rank 1 and rank 0 in turn, until the last of the two has done its next step;
* freeze: SIGSTOP, likewise;
* join: a slot added on the host, whose pool is warm: how long the incumbent stands still;
* throughput: steps per second with agent, heartbeats and an idle pool, against static stock Horovod;
* stock: the same with stock Horovod Elastic (`stock_worker`), where it comes back at all;
* torchrun: not measured unless torch is installed.

The rounds of ours and of stock are interleaved. A figure is the median of its rounds.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import stock
from benchmarks.report import into_readme, machine, spread, tell
from elastic.events import Record
from tests.e2e import job as jobs

MNIST = jobs.ROOT / "configs" / "mnist.yaml"
SETS = (
    "data.source=benchmarks.digits:data",
    "epochs=100000",
    "batch.per_worker=32",
    "commit.steps=1000",
    "learning_rate.scale=none",
)
QUIET_S = 2.0  # training runs undisturbed this long between a standby's readiness and the next fault
RATE_S = 15.0
PHASES = ("detect", "promote", "rendezvous", "sync", "first step")


def one_host(folder: Path, hosts: str, *sets: str) -> jobs.Job:
    """Start our job under stock horovodrun on one host."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ("-np", hosts.rpartition(":")[2], "--min-np", "1", "--max-np", "4")
    env = {"PYTHONPATH": str(jobs.ROOT)}
    return jobs.start(folder, MNIST, *SETS, *sets, launcher="horovodrun", hosts=(hosts,), options=options, env=env)


def wait_warm(job: jobs.Job, since: float) -> None:
    """Return when a standby has become ready after `since` and training has run quietly for a while."""
    job.wait(lambda r: r.event == "StandbyReady" and r.time > since)
    step = max(int(r.get("step", 0)) for r in job.poll())
    job.wait_step(step + 1)
    quiet_until = time.monotonic() + QUIET_S
    while time.monotonic() < quiet_until:
        job.poll()
        time.sleep(0.05)


def fault(job: jobs.Job, rank: int, number: int) -> dict[str, float]:
    """Signal a worker; return the total and the phases until both have done their next step, in seconds."""
    generation = job.generation()
    pid = job.pid_of(rank)
    at = time.time()
    os.kill(pid, number)
    job.wait(lambda r: r.event == "FirstStepDone" and r.generation == generation + 1, count=2)
    seen = [r for r in job.poll() if r.time >= at]

    def first(event: str, fits: Any = lambda _: True) -> Record:
        return next(r for r in seen if r.event == event and fits(r))

    lost = first("WorkerLost")
    started = first("WorkerStarted")
    formed = first("WorldFormed", lambda r: r.pid == started.get("worker_pid"))
    steps = [r for r in seen if r.event == "FirstStepDone" and r.generation == generation + 1]
    end = max(r.time for r in steps)
    reached = max(int(r.get("step")) for r in seen if r.event == "CollectiveFailed")  # by the survivor
    sync_s = float(formed.get("phases_s")["sync"])
    return {
        "total": end - at,
        "detect": lost.time - at,
        "promote": started.time - lost.time,
        "rendezvous": formed.time - started.time - sync_s,
        "sync": sync_s,
        "first step": end - formed.time,
        "done again": float(reached - int(formed.get("step"))),
    }


def join(job: jobs.Job) -> float:
    """Add a slot to the host; return how long the incumbent stood still."""
    generation = job.generation()
    job.hosts_file.write_text("localhost:2\n")
    job.wait(lambda r: r.event == "FirstStepDone" and r.generation == generation + 1, count=2)
    pause = max(float(r.get("pause_s")) for r in job.of("FirstStepDone") if r.generation == generation + 1)
    job.hosts_file.write_text("localhost:1\n")
    job.wait(lambda r: r.event == "FirstStepDone" and r.generation == generation + 2)
    return pause


def our_rate(job: jobs.Job, seconds: float) -> float:
    """Return steps per second while the pool is idle."""
    facts = [r for r in job.poll() if r.event == "Progressed"]
    begin = job.wait(lambda r: r.event == "Progressed", count=len(facts) + 1)
    end_ = job.wait(lambda r: r.event == "Progressed" and r.time > begin.time + seconds)
    return (int(end_.get("step")) - int(begin.get("step"))) / (end_.time - begin.time)


def measure(rounds: int, stock_rounds: int) -> dict[str, Any]:
    """Run everything, interleaved; return the figures."""
    faults: dict[str, list[dict[str, float]]] = {"kill": [], "freeze": []}
    joins: list[float] = []
    stock_joins: list[float] = []
    stock_kills: list[str] = []
    ours: list[float] = []
    stocks: list[float] = []
    with tempfile.TemporaryDirectory(prefix="elastic-bench-") as temporary:
        base = Path(temporary)
        chunk = max(1, rounds // max(1, stock_rounds))
        for part in range(stock_rounds):
            job = one_host(base / f"faults{part}", "localhost:2")
            try:
                job.wait(lambda r: r.event == "StandbyReady")
                ours.append(our_rate(job, RATE_S))
                since = 0.0
                for i in range(chunk):
                    for kind, number in (("kill", signal.SIGKILL), ("freeze", signal.SIGSTOP)):
                        wait_warm(job, since)
                        since = time.time()
                        faults[kind].append(fault(job, (i + 1) % 2, number))
                        _say(f"{kind}: {faults[kind][-1]['total']:.3f} s")
            finally:
                job.close()
            job = one_host(base / f"join{part}", "localhost:1")
            try:
                since = 0.0
                for _ in range(chunk):
                    wait_warm(job, since)
                    since = time.time()
                    joins.append(join(job))
                    _say(f"join: {joins[-1]:.3f} s")
            finally:
                job.close()
            stocks.append(stock.rate(base / f"stock-rate{part}", RATE_S))
            _say(f"steps/s: ours {ours[-1]:.2f}, stock {stocks[-1]:.2f}")
            stock_kills.append(stock.kill(base / f"stock-kill{part}"))
            _say(f"stock kill: {stock_kills[-1]}")
            pause = stock.join(base / f"stock-join{part}")
            if pause is not None:
                stock_joins.append(pause)
                _say(f"stock join: {pause:.3f} s")
    kill, freeze = faults["kill"], faults["freeze"]
    phases = {phase: spread([f[phase] for f in kill])["median"] for phase in PHASES}
    covered = [sum(f[phase] for phase in PHASES) / f["total"] for f in kill]
    return {
        "machine": machine(),
        "kill_s": spread([f["total"] for f in kill]),
        "kill_phases_s": phases,
        "phases_cover": spread(covered),
        "steps_done_again_per_kill": spread([f["done again"] for f in kill]),
        "freeze_s": spread([f["total"] for f in freeze]),
        "join_pause_s": spread(joins),
        "stock_kill": sorted(set(stock_kills)),
        "stock_join_pause_s": spread(stock_joins),
        "steps_per_s": spread(ours),
        "stock_steps_per_s": spread(stocks),
        "throughput_of_stock": spread([a / b for a, b in zip(ours, stocks, strict=True)]),
        "torchrun": "skipped: torch is not installed" if not _has_torch() else "skipped: not part of this run",
        "rounds_s": {"kill": [round(f["total"], 3) for f in kill], "freeze": [round(f["total"], 3) for f in freeze]},
    }


def _has_torch() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch") is not None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""

    def cell(figure: dict[str, float]) -> str:
        if not figure.get("n"):
            return "-"
        return f"{figure['median']:.2f} s ({figure['min']:.2f} to {figure['max']:.2f}, n = {figure['n']:.0f})"

    phases = ", ".join(f"{name} {seconds:.3f}" for name, seconds in result["kill_phases_s"].items())
    host = result["machine"]
    kill, freeze, join_pause = cell(result["kill_s"]), cell(result["freeze_s"]), cell(result["join_pause_s"])
    again = result["steps_done_again_per_kill"].get("median", 0)
    share = result["throughput_of_stock"].get("median", 0)
    rate = f"{result['steps_per_s'].get('median', 0):.1f} ({share:.3f} of stock)"
    cover = 100 * result["phases_cover"].get("median", 0)
    lines = [
        "| fault | ours | stock Horovod Elastic |",
        "| --- | --- | --- |",
        f"| SIGKILL of a worker -> next step on both | {kill} | {'; '.join(result['stock_kill'])} |",
        f"| SIGSTOP of a worker -> next step on both | {freeze} | not measured (never, see Design) |",
        f"| a slot added on a warm host: incumbents' pause | {join_pause} | {cell(result['stock_join_pause_s'])} |",
        f"| steps done again per kill | {again:.0f} | - |",
        f"| steps/s, pool idle (stock: static Horovod) | {rate} | {result['stock_steps_per_s'].get('median', 0):.1f} |",
        "",
        f"Phases of a kill, medians in seconds: {phases}; they cover {cover:.0f} % of the time.",
        f"torchrun: {result['torchrun']}.",
        f"{host['cpu']}, {host['cores']} cores, {host['memory']}, {host['date']};",
        "`uv run python -m benchmarks.recovery`.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="write the table into the README")
    parser.add_argument("--rounds", type=int, default=10, help="of each fault")
    parser.add_argument("--stock-rounds", type=int, default=2, help="of stock Horovod, between ours")
    options = parser.parse_args()
    result = measure(options.rounds, options.stock_rounds)
    tell(result, as_json=options.json, table=table(result))
    if options.write:
        into_readme("recovery", table(result))


if __name__ == "__main__":
    main()
