"""How long until training goes on at full strength? `python -m benchmarks.recovery [--json] [--write]`.

On one host with two workers, the MNIST CNN at batch 32 a worker, under stock `horovodrun`:

* kill: SIGKILL of rank 1 and rank 0 in turn, until the last of the two has done its next step;
* freeze: SIGSTOP, likewise;
* join: a slot added on the host, whose pool is warm: how long the incumbent stands still;
* throughput: steps and CPU time per second with agent, heartbeats and an idle pool, against static stock Horovod;
* stock: the same faults with stock Horovod Elastic (`stock_worker`), where it comes back at all;
* torchrun: the same with PyTorch's launcher (`torchrun_worker`); left out unless torch is installed.

The systems take turns: a few rounds of ours, of stock, of torchrun, then again. A figure is the median of its
rounds. Three quarters of an hour on two cores.
"""

import argparse
import json
import random
import signal
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from benchmarks import faults, plot, stock, throughput, torchrun
from benchmarks.figures import Measured, figures
from benchmarks.report import end_when_told, into_readme, say, tell
from benchmarks.table import table

PARTS = ("kill", "freeze", "join", "throughput", "stock", "torchrun")


def share(rounds: int, turns: int) -> list[int]:
    """Cut rounds into turns as even as can be."""
    return [rounds // turns + (turn < rounds % turns) for turn in range(turns)]


def measure(rounds: int, turns: int, pairs: int, parts: Collection[str]) -> Measured:
    """Run the parts, all systems in each turn."""
    m = Measured()
    if "torchrun" in parts:
        m.torch_note = torchrun.note()
    with tempfile.TemporaryDirectory(prefix="elastic-bench-") as temporary:
        for turn, chunk in enumerate(share(rounds, turns)):
            base = Path(temporary) / str(turn)
            if {"kill", "freeze"} & set(parts):
                lose_workers(base / "faults", chunk, parts, m)
            if "join" in parts:
                add_slots(base / "join", chunk, m)
            if "stock" in parts:
                stock_faults(base, turn, m)
            if "torchrun" in parts and torchrun.installed():
                torchrun_faults(base, turn, chunk, m)
        if "throughput" in parts:
            m.pairs = throughput.measure(Path(temporary) / "throughput", pairs)
    return m


def lose_workers(folder: Path, rounds: int, parts: Collection[str], m: Measured) -> None:
    """Kill and freeze workers of one job of ours, in turn."""
    job = faults.start(folder, "localhost:2")
    try:
        since = 0.0
        for _ in range(rounds):
            for kind, number, into in (("kill", signal.SIGKILL, m.kills), ("freeze", signal.SIGSTOP, m.freezes)):
                if kind not in parts:
                    continue
                faults.wait_warm(job, since)
                since = time.time()
                into.append(faults.lose(job, (len(into) + 1) % 2, number))
                say(f"{kind}: {into[-1].total_s:.3f} s")
    finally:
        job.close()


def add_slots(folder: Path, rounds: int, m: Measured) -> None:
    """Add a slot to one job of ours and take it away, again and again."""
    job = faults.start(folder, "localhost:1")
    try:
        since = 0.0
        for _ in range(rounds):
            faults.wait_warm(job, since)
            since = time.time()
            m.joins.append(faults.join(job))
            say(f"join: {m.joins[-1]:.3f} s")
    finally:
        job.close()


def stock_faults(base: Path, turn: int, m: Measured) -> None:
    """Break a stock job in each way; freeze one in the first turn only, as it takes its whole time-out."""
    m.stock_kills.append(stock.kill(base / "stock-kill"))
    say(f"stock kill: {m.stock_kills[-1]}")
    if turn == 0:
        m.stock_freezes.append(stock.freeze(base / "stock-freeze"))
        say(f"stock freeze: {m.stock_freezes[-1]}")
    pause = stock.join(base / "stock-join")
    if pause is not None:
        m.stock_joins.append(pause)
    say(f"stock join: {pause} s")


def torchrun_faults(base: Path, turn: int, rounds: int, m: Measured) -> None:
    """Kill workers of one job under torchrun in turn; freeze one in the first turn only."""
    chance = random.Random(turn)
    job = torchrun.start(base / "torchrun")
    try:
        for _ in range(rounds):
            m.torch_kills.append(torchrun.kill(job, (len(m.torch_kills) + 1) % 2, chance))
            say(f"torchrun kill: {m.torch_kills[-1]}")
    finally:
        job.close()
    if turn == 0:
        m.torch_freezes.append(torchrun.freeze(base / "torchrun-freeze"))
        say(f"torchrun freeze: {m.torch_freezes[-1]}")


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="write the table into the README, and the plot beside it")
    parser.add_argument("--rounds", type=int, default=10, help="of each fault, under ours and torchrun")
    parser.add_argument("--stock-rounds", type=int, default=2, help="of stock Horovod; turns the rest is cut into")
    parser.add_argument("--pairs", type=int, default=16, help="of throughput windows")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--from", dest="file", type=Path, help="measure nothing: tell what an earlier --json told")
    options = parser.parse_args()
    parts = options.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))}; expected some of {','.join(PARTS)}")
    if options.write and set(parts) != set(PARTS):
        parser.error("--write needs all parts, or the README loses the others' figures; drop --only")
    end_when_told()
    result: dict[str, Any]
    if options.file:
        result = json.loads(options.file.read_text())
    else:
        result = figures(measure(options.rounds, max(1, options.stock_rounds), options.pairs, parts))
    tell(result, as_json=options.json, table=table(result))
    if options.write:
        plot.draw(result)
        into_readme("recovery", f"{table(result)}\n\n![Recovery time by fault and system](benchmarks/recovery.svg)")


if __name__ == "__main__":
    main()
