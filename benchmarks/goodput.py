"""How much gets done under a kill every ten seconds? `python -m benchmarks.goodput [--json] [--write]`.

The same CNN on the bundled digits, batch 32 a worker, two workers of one thread each: ours, stock Horovod
Elastic on two "hosts", torchrun, torchft, Ray Train v2. Each system trains undisturbed for three minutes and
then for three minutes in which every ten seconds a SIGKILL hits one of the workers that it has, drawn from the same
seed for all. They take turns, in another order each round. What is not installed is left out and says so.

Goodput is what was gained in the disturbed window over what was gained in the undisturbed one before it. A
step counts when training gets further than it ever was (what is done again is no gain), and for as much as
the world is whole: half, when one worker alone does it. Start-up is not in it.

Half an hour a round.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import goodput_plot
from benchmarks.goodput_systems import SYSTEMS, Running, System
from benchmarks.others import Row
from benchmarks.report import end_when_told, into_readme, machine, say, spread, tell

WORKERS = 2
MUST, MUST_TIMES = 0.90, 2.0  # of an undisturbed run; of the best peer
LOOK_S = 0.1
SEED = 7


@dataclass(frozen=True, slots=True)
class Window:
    """Training over a while.

    Attributes:
        gained: steps, as `gained` counts them.
        kills: that hit somebody.
        curve: what was gained up to each second.
        ended_s: when the job ended; None when it did not.
    """

    gained: float
    kills: int
    curve: tuple[float, ...]
    ended_s: float | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One system's two windows, one right after the other."""

    quiet: Window
    broken: Window

    @property
    def goodput(self) -> float:
        return self.broken.gained / self.quiet.gained


def gained(rows: Sequence[Row], begin: float, ends: Sequence[float]) -> list[float]:
    """Return the steps gained from `begin` until each of `ends`, in rising order, all in seconds since 1970.

    A step is gained when training gets further than it ever was; one of `size` workers counts `size / WORKERS`.
    """
    best, total, found = 0, 0.0, []
    at = iter(sorted(rows, key=lambda row: row.time))
    row = next(at, None)
    for end in ends:
        while row is not None and row.time <= end:
            if row.step > best:
                if row.time > begin:
                    total += (row.step - best) * row.size / WORKERS
                best = row.step
            row = next(at, None)
        found.append(total)
    return found


def watch(running: Running, seconds: float, kill: Callable[[], bool], every_s: float | None) -> Window:
    """Let a job train for a while; `kill` somebody every so often, from half such a time on."""
    begin, kills, ended = time.time(), 0, None
    due = begin + every_s / 2 if every_s is not None else None
    while (now := time.time()) < begin + seconds and ended is None:
        if due is not None and now >= due:
            kills += kill()
            due += every_s or 0.0
        if not running.alive():
            ended = now - begin
        running.rows()
        time.sleep(LOOK_S)
    while time.time() < begin + seconds:
        time.sleep(LOOK_S)
    ends = [begin + second for second in range(1, int(seconds) + 1)] + [begin + seconds]
    *curve, total = gained(running.rows(), begin, ends)
    return Window(total, kills, tuple(curve), ended)


def measure(system: System, folder: Path, seconds: float, every_s: float, settled: int, seed: int) -> Round:
    """Run one system's job through both windows."""
    chance = random.Random(seed)
    with system.start(folder, settled) as running:

        def kill() -> bool:
            draw, victims = chance.random(), running.victims()
            if not victims:
                return False
            psutil.Process(victims[int(draw * len(victims))]).kill()
            return True

        quiet = watch(running, seconds, kill, None)
        if not quiet.gained:
            raise SystemExit(f"{system.words}: no step within {seconds:.0f} s of an undisturbed run; see {folder}")
        return Round(quiet, watch(running, seconds, kill, every_s))


def figures(rounds: dict[str, list[Round]], notes: dict[str, str], seconds: float, every_s: float) -> dict[str, Any]:
    """Return everything that is told."""
    words = {system.name: system.words for system in SYSTEMS}
    systems = {
        name: {
            "words": words[name],
            "goodput": spread([r.goodput for r in found]),
            "steps_undisturbed": spread([r.quiet.gained for r in found]),
            "steps": spread([r.broken.gained for r in found]),
            "kills": spread([r.broken.kills for r in found]),
            "ended_s": [round(r.broken.ended_s, 1) for r in found if r.broken.ended_s is not None],
            "curve": [round(v / found[-1].quiet.gained, 4) for v in found[-1].broken.curve],
        }
        for name, found in rounds.items()
        if found
    }
    return {
        "machine": machine(),
        "seconds": seconds,
        "every_s": every_s,
        "systems": systems,
        "left_out": {words[name]: why for name, why in notes.items()},
        "must": verdict({name: s["goodput"]["median"] for name, s in systems.items()}),
    }


def verdict(medians: dict[str, float]) -> dict[str, Any]:
    """Return what ours must reach and whether it does; nothing without ours."""
    if "ours" not in medians:
        return {}
    ours, peers = medians["ours"], [value for name, value in medians.items() if name != "ours"]
    best = max(peers, default=None)
    return {
        "at_least": MUST,
        "times_best_peer": MUST_TIMES,
        "best_peer": best,
        "of_best_peer": round(ours / best, 2) if best else None,
        "reached": ours >= MUST and (best is None or ours >= MUST_TIMES * best),
    }


def table(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    seconds, host = result["seconds"], result["machine"]
    lines = [
        f"| a SIGKILL every {result['every_s']:.0f} s for {seconds:.0f} s | goodput | steps | undisturbed | kills |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for system in result["systems"].values():
        share = system["goodput"]
        cell = f"{share['median']:.3f} ({share['min']:.3f} to {share['max']:.3f}, n = {share['n']})"
        ended = f"; the job ended after {statistics.median(system['ended_s']):.0f} s" if system["ended_s"] else ""
        steps = " | ".join(f"{system[name]['median']:.0f}" for name in ("steps", "steps_undisturbed", "kills"))
        lines.append(f"| {system['words']} | {cell}{ended} | {steps} |")
    lines += [f"| {words} | left out: {why} | | | |" for words, why in result["left_out"].items()]
    told = [
        "Steps are those of two workers; one that a worker does alone counts half, one that is done again not at all.",
        *must_words(result["must"]),
        f"{host['cpu']}, {host['cores']} cores, {host['memory']}, {host['date']};",
        "`uv run --group torch python -m benchmarks.goodput`.",
    ]
    return "\n".join([*lines, "", *told])


def must_words(must: dict[str, Any]) -> list[str]:
    """Return what ours must reach, in words."""
    if not must:
        return []
    times = f"{must['of_best_peer']:.1f} times the best peer's" if must["of_best_peer"] else "no peer to compare with"
    bound = f"ours must be at least {must['at_least']:.2f} and {must['times_best_peer']:.0f} times the best peer's"
    return [f"By its definition {bound}: {'reached' if must['reached'] else 'NOT reached'} ({times})."]


def run(
    chosen: Sequence[System], rounds: int, seconds: float, every_s: float, settled: int, base: Path
) -> dict[str, Any]:
    """Measure the chosen systems in turn, whose files go into folders of `base`; return the figures."""
    notes = {system.name: why for system in chosen if (why := system.missing())}
    there = [system for system in chosen if system.name not in notes]
    found: dict[str, list[Round]] = {system.name: [] for system in there}
    for number in range(rounds):
        for system in there if number % 2 == 0 else reversed(there):
            folder = base / f"{system.name}-{number}"
            found[system.name].append(measure(system, folder, seconds, every_s, settled, SEED + number))
            last = found[system.name][-1]
            say(f"{system.words}: {last.goodput:.3f} ({last.broken.gained:.0f} of {last.quiet.gained:.0f} steps)")
    return figures(found, notes, seconds, every_s)


def main() -> None:
    """Measure and tell."""
    names = [system.name for system in SYSTEMS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="write the table into the README, and the plot beside it")
    parser.add_argument("--seconds", type=float, default=180.0, help="of each window")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two kills")
    parser.add_argument("--rounds", type=int, default=1, help="of all systems")
    parser.add_argument("--settle", type=int, default=100, help="steps of each worker before its first window")
    parser.add_argument("--only", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument("--folder", type=Path, help="for the jobs' files, to be looked at; else they are thrown away")
    parser.add_argument("--from", dest="file", type=Path, help="measure nothing: tell what an earlier --json told")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(names):
        parser.error(f"--only: {', '.join(sorted(unknown))}; expected some of {','.join(names)}")
    end_when_told()
    if options.file:
        result: dict[str, Any] = json.loads(options.file.read_text())
    else:
        chosen = [system for system in SYSTEMS if system.name in wanted]
        with tempfile.TemporaryDirectory(prefix="elastic-goodput-") as temporary:
            base = options.folder or Path(temporary)
            result = run(chosen, options.rounds, options.seconds, options.every, options.settle, base)
    tell(result, as_json=options.json, table=table(result))
    if options.write:
        goodput_plot.draw(result)
        into_readme("goodput", f"{table(result)}\n\n![Steps gained under a kill every 10 s](benchmarks/goodput.svg)")


if __name__ == "__main__":
    main()
