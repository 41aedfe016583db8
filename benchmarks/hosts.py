"""What do changes of hosts cost? `python -m benchmarks.hosts [--json] [--write]`; needs root and Debian's sshd.

A launcher and three hosts on one machine, each in a network namespace with an sshd of its own, under
stock `horovodrun` over ssh and `discover_hosts.sh`:

* join: a third host, on which `elastic warm` keeps a standby, is added to the hosts file: from then to the
  first step with it, and how long the two others stand still (MNIST CNN, batch 32 a worker);
* flap: a third host comes and goes every 5 s for two minutes: new worlds meanwhile, and samples/s as a
  share of the undisturbed job's before and after (steps of 20 ms, so that three workers have room on two cores).

`hold_s` is 0 for the joins, or a host that has left twice would be held out. Twelve minutes on two cores.
"""

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import faults
from benchmarks.report import end_when_told, into_readme, machine, say, spread, tell
from elastic.chaos.net.hosts import Net, missing
from elastic.events import Record
from tests.e2e.job import BIN, ROOT
from tests.hosts.jobs import OnHosts

FLAP_S = 5.0
FLAPS_FOR_S = 120.0
STEADY_S = 60.0
REST_S = 5.0
GATE = "{period_s: 1.0}"
JOIN_MUST_S, PAUSE_MUST_S, RESETS_MUST, SHARE_MUST = 3.0, 1.0, 3, 0.9


@contextlib.contextmanager
def job(folder: Path, sets: Sequence[str] = (), cnn: bool = False, discovery: str = "") -> Iterator[OnHosts]:
    """Yield a job that trains on `h1` and `h2`; `h3` has an sshd and no more."""
    folder.mkdir()
    net = Net(folder / "net", 4)
    run = None
    try:
        net.open()
        options: dict[str, Any] = {"env": {"PYTHONPATH": f"{folder}:{ROOT}"}, "gate": GATE, "discovery": discovery}
        if cnn:
            options |= {"job": faults.MNIST, "sets": (*faults.SETS, "model=benchmarks.models:cnn", *sets)}
        run = OnHosts.start(net, folder, "h1", "h2", **options)
        run.wait_stepping(2)
        yield run
    finally:
        if run is not None:
            run.close()
        net.close()


def joins(folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Return seconds from the change of the source to the first step of three, and those the others stood still."""
    took, pauses = [], []
    with job(folder, cnn=True, discovery="hold_s: 0\n") as run:
        env = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}"}
        with (folder / "warm.log").open("ab") as log:
            line = [str(BIN / "elastic"), "warm", str(run.job.run_dir.path)]
            run.net.run("h3", line, env=env, stdout=log, stderr=log)  # ends with its host
        since = 0.0
        for _ in range(rounds):
            run.job.wait(lambda r, since=since: r.event == "StandbyReady" and r.host == "h3" and r.time > since)
            run.train_on(REST_S)
            at = since = run.name("h1", "h2", "h3")
            took.append(run.wait_stepping(3, at) - at)
            pauses.append(pause([r for r in run.job.of("FirstStepDone") if r.time > at], "h3"))
            say(f"join: {took[-1]:.3f} s, pause {pauses[-1]:.3f} s")
            run.train_on(REST_S)
            run.wait_stepping(2, run.name("h1", "h2"))
    return took, pauses


def pause(first_steps: Sequence[Record], newcomer: str) -> float:
    """Return how long those stood still who were there before, in the first world with a newcomer."""
    world = next(r.generation for r in first_steps if r.host == newcomer)
    return max(float(r.get("pause_s")) for r in first_steps if r.generation == world and r.host != newcomer)


def flap(folder: Path) -> dict[str, Any]:
    """Let a host come and go; return what that cost."""
    with job(folder) as run:
        run.train_on(REST_S)
        before = samples_per_s(run, STEADY_S)
        at = time.time()
        run.train_on(0.0)
        began, there = run.job.of("Progressed")[-1], False
        ends = time.monotonic() + FLAPS_FOR_S
        while time.monotonic() < ends:
            there = not there
            run.name("h1", "h2", *(["h3"] if there else []))
            run.train_on(FLAP_S)
        ended = run.job.of("Progressed")[-1]
        during = rate(began, ended)
        resets = len(run.worlds(at))
        run.name("h1", "h2")
        run.train_on(REST_S)
        after = samples_per_s(run, STEADY_S)
    say(f"flap: {resets} resets, {during:.0f} samples/s, undisturbed {before:.0f} before and {after:.0f} after")
    share = during / ((before + after) / 2)
    return {"resets": resets, "samples_per_s": [round(v, 1) for v in (before, during, after)], "share": round(share, 3)}


def samples_per_s(run: OnHosts, for_s: float) -> float:
    """Let time pass; return the pace in it."""
    run.train_on(1.5)
    began = run.job.of("Progressed")[-1]
    run.train_on(for_s)
    return rate(began, run.job.of("Progressed")[-1])


def rate(began: Record, ended: Record) -> float:
    """Return samples a second between two facts of progress."""
    return (int(ended.get("samples")) - int(began.get("samples"))) / (ended.time - began.time)


def table(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = ["| hosts that come and go, over ssh | measured | must |", "| --- | --- | --- |"]
    rows: list[tuple[str, str, str]] = []
    if "join_s" in result:
        join, still = result["join_s"], result["join_pause_s"]
        count = f"n = {join['n']}"
        rows = [
            ("host added to the source -> first step with it, warm pool", _range(join, count), f"<= {JOIN_MUST_S:g} s"),
            ("the others stand still for", _range(still, count), f"<= {PAUSE_MUST_S:g} s"),
        ]
    if "flap" in result:
        flapped = result["flap"]
        what = f"host flapping every {FLAP_S:g} s for {FLAPS_FOR_S / 60:g} minutes: new worlds"
        rows += [
            (what, str(flapped["resets"]), f"<= {RESETS_MUST}"),
            ("and samples/s of the undisturbed job's", f"{flapped['share']:.3f}", f">= {SHARE_MUST:g}"),
        ]
    lines += [f"| {what} | {measured} | {must} |" for what, measured, must in rows]
    host = result["machine"]
    lines += ["", f"{host['cpu']}, {host['cores']} cores, {host['memory']}, {host['date']}; medians (least to most);"]
    return "\n".join([*lines, "`uv run python -m benchmarks.hosts`."])


def _range(found: dict[str, float], count: str) -> str:
    return f"{found['median']:.2f} s ({found['min']:.2f} to {found['max']:.2f}, {count})"


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="write the table into the README")
    parser.add_argument("--rounds", type=int, default=6, help="of joins")
    parser.add_argument("--only", choices=("join", "flap"), help="one part")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write needs both parts, or the README loses the other's figures; drop --only")
    if why := missing():
        parser.error(why)
    end_when_told()
    result: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory(prefix="elastic-hosts-") as temporary:
        if options.only != "flap":
            took, pauses = joins(Path(temporary) / "join", options.rounds)
            result |= {"join_s": spread(took), "join_pause_s": spread(pauses)}
        if options.only != "join":
            result["flap"] = flap(Path(temporary) / "flap")
    tell(result, as_json=options.json, table=table(result))
    if options.write:
        into_readme("hosts", table(result))


if __name__ == "__main__":
    main()
