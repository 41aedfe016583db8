"""What does everything together cost while nothing happens? `python -m benchmarks.steady [--json] [--write]`.

Two workers on one host under stock `horovodrun`, agent, heartbeats, an idle warm pool, exact data, a
look at the hosts at each step and a checkpoint every 10 s, against static Horovod with the same
model, threads and global batch of 64: the MNIST CNN and a dense network of 25 million parameters.
See `throughput` for how the two are compared on a noisy machine.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import throughput
from benchmarks.report import end_when_told, into_readme, machine, spread, tell
from elastic.events import read

MODELS = {"cnn": "MNIST CNN", "dense": "dense, 25 M parameters"}
SETS = ("batch.global=64", "checkpoint.every_s=10", "commit.steps=null")
WINDOWS_S = {"cnn": 10.0, "dense": 30.0}  # of some 350 steps and of some 40
RESUME_S = 5.0  # a job that stood still owes a checkpoint at once; from here on a window has one each 10 s
SETTLED = {"cnn": throughput.SETTLED, "dense": 20}


def measure(model: str, pairs: int) -> dict[str, Any]:
    """Return the figures of one model."""
    with tempfile.TemporaryDirectory(prefix="elastic-steady-") as temporary:
        window_s, settled = WINDOWS_S[model], SETTLED[model]
        found = throughput.measure(
            Path(temporary), pairs, model=model, window_s=window_s, sets=SETS, settled=settled, resume_s=RESUME_S
        )
        facts = read(Path(temporary) / "ours" / "run" / "events.jsonl")
    written = [r for r in facts if r.event == "CheckpointWritten"]
    return {
        "steps_per_s": spread([p.ours.steps_per_s for p in found]),
        "stock_steps_per_s": spread([p.other.steps_per_s for p in found]),
        "throughput_of_stock": spread([p.ours.steps_per_s / p.other.steps_per_s for p in found]),
        "worker_cpu_of_stock": spread([p.ours.workers_s / p.other.workers_s for p in found]),
        "checkpoints": len(written),
        "checkpoint_blocks_s": spread([float(r.get("blocked_s")) for r in written]),
        "checkpoint_takes_s": spread([float(r.get("took_s")) for r in written]),
        "checkpoint_mb": round(max((r.get("size_bytes") for r in written), default=0) / 1e6, 1),
    }


def table(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = [
        "| model | steps/s | of static Horovod | CPU time of static Horovod's | a checkpoint every 10 s blocks |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, words in MODELS.items():
        if name not in result:
            continue
        r = result[name]
        share, cpu = r["throughput_of_stock"], r["worker_cpu_of_stock"]
        blocks = r["checkpoint_blocks_s"].get("median", 0.0)
        rate = f"{share['median']:.3f} ({share['min']:.2f} to {share['max']:.2f}, n = {share['n']})"
        checkpoint = f"{1000 * blocks:.1f} ms of {r['checkpoint_mb']:.0f} MB: {10 * blocks:.2f} %"
        lines.append(f"| {words} | {r['steps_per_s']['median']:.1f} | {rate} | {cpu['median']:.3f} | {checkpoint} |")
    host = result["machine"]
    lines += ["", f"{host['cpu']}, {host['cores']} cores, {host['memory']}, {host['date']};"]
    return "\n".join([*lines, "`uv run python -m benchmarks.steady`."])


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="write the table into the README")
    parser.add_argument("--pairs", type=int, default=10, help="of windows, for each model")
    parser.add_argument("--only", choices=sorted(MODELS), help="one model")
    options = parser.parse_args()
    end_when_told()
    chosen = [options.only] if options.only else list(MODELS)
    result = {"machine": machine()} | {name: measure(name, options.pairs) for name in chosen}
    tell(result, as_json=options.json, table=table(result))
    if options.write:
        into_readme("steady", table(result))


if __name__ == "__main__":
    main()
