"""What do the same bits cost? `python -m benchmarks.deterministic [--json] [--write]`.

Two workers on one host train the MNIST CNN with a global batch of 256: one job in deterministic mode
with four shards, one in normal mode. They take turns within seconds (see `throughput`), and what is
told is the median of the ratios of neighbours.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import throughput
from benchmarks.report import end_when_told, into_readme, machine, spread, tell

SETS = ("batch.global=256", "checkpoint.every_s=3600", "commit.steps=null")
SHARDS = 4
WINDOW_S = 5.0


def measure(pairs: int) -> dict[str, Any]:
    """Return step times of both modes in milliseconds, and their ratio."""
    with tempfile.TemporaryDirectory(prefix="elastic-deterministic-") as temporary:
        folder = Path(temporary)
        with (
            throughput.ours(folder / "plain", "cnn", *SETS) as plain,
            throughput.ours(folder / "same", "cnn", *SETS, "deterministic=true", f"shards={SHARDS}") as same,
        ):
            found = throughput.take_turns(same, plain, pairs, WINDOW_S)
    return {
        "step_ms": spread([1000 / p.ours.steps_per_s for p in found]),
        "plain_step_ms": spread([1000 / p.other.steps_per_s for p in found]),
        "step_time_of_plain": spread([p.other.steps_per_s / p.ours.steps_per_s for p in found]),
        "worker_cpu_of_plain": spread([p.ours.workers_s / p.other.workers_s for p in found]),
    }


def table(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    ratio, host = result["step_time_of_plain"], result["machine"]
    times = [f"{result[name]['median']:.1f} ms" for name in ("step_ms", "plain_step_ms")]
    share = f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f}, n = {ratio['n']})"
    return "\n".join(
        [
            "| deterministic step | normal step | ratio | CPU time of normal mode's |",
            "| --- | --- | --- | --- |",
            f"| {' | '.join(times)} | {share} | {result['worker_cpu_of_plain']['median']:.2f} |",
            "",
            f"{host['cpu']}, {host['cores']} cores, {host['memory']}, {host['date']};",
            "`uv run python -m benchmarks.deterministic`.",
        ]
    )


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="write the table into the README")
    parser.add_argument("--pairs", type=int, default=10, help="of windows")
    options = parser.parse_args()
    end_when_told()
    result = {"machine": machine()} | measure(options.pairs)
    tell(result, as_json=options.json, table=table(result))
    if options.write:
        into_readme("deterministic", table(result))


if __name__ == "__main__":
    main()
