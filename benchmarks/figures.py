"""What a run of the recovery benchmark has measured, and the figures made of it."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.faults import PHASES, Recovery
from benchmarks.report import machine, spread
from benchmarks.throughput import Pair
from benchmarks.torchrun import Restart


@dataclass
class Measured:
    """One entry a round; what was not asked for stays empty."""

    kills: list[Recovery] = field(default_factory=list)
    freezes: list[Recovery] = field(default_factory=list)
    joins: list[float] = field(default_factory=list)
    stock_kills: list[str] = field(default_factory=list)
    stock_freezes: list[str] = field(default_factory=list)
    stock_joins: list[float] = field(default_factory=list)
    torch_kills: list[Restart] = field(default_factory=list)
    torch_freezes: list[str] = field(default_factory=list)
    torch_note: str = "skipped: not part of this run"
    pairs: list[Pair] = field(default_factory=list)


def figures(m: Measured) -> dict[str, Any]:
    """Return everything that is told, by name; durations in seconds, CPU time in milliseconds a step."""
    return {
        "machine": machine(),
        "kill_s": spread([k.total_s for k in m.kills]),
        "kill_phases_s": phases(m.kills),
        "phases_cover": spread([sum(k.phases_s.values()) / k.total_s for k in m.kills]),
        "steps_done_again_per_kill": spread([k.done_again for k in m.kills]),
        "freeze_s": spread([f.total_s for f in m.freezes]),
        "freeze_phases_s": phases(m.freezes),
        "join_pause_s": spread(m.joins),
        "stock_kill": sorted(set(m.stock_kills)),
        "stock_freeze": sorted(set(m.stock_freezes)),
        "stock_join_pause_s": spread(m.stock_joins),
        "torchrun": m.torch_note,
        "torchrun_kill_s": spread([k.total_s for k in m.torch_kills]),
        "torchrun_steps_done_again_per_kill": spread([k.done_again for k in m.torch_kills]),
        "torchrun_freeze": sorted(set(m.torch_freezes)),
        "steps_per_s": spread([p.ours.steps_per_s for p in m.pairs]),
        "stock_steps_per_s": spread([p.other.steps_per_s for p in m.pairs]),
        "throughput_of_stock": spread([p.ours.steps_per_s / p.other.steps_per_s for p in m.pairs]),
        "worker_cpu_ms_per_step": spread([1000 * p.ours.workers_s for p in m.pairs]),
        "stock_worker_cpu_ms_per_step": spread([1000 * p.other.workers_s for p in m.pairs]),
        "worker_cpu_of_stock": spread([p.ours.workers_s / p.other.workers_s for p in m.pairs]),
        "agents_cpu_ms_per_step": spread([1000 * p.ours.agents_s for p in m.pairs]),
        "launcher_cpu_ms_per_step": spread([1000 * p.ours.launcher_s for p in m.pairs]),
        "stock_launcher_cpu_ms_per_step": spread([1000 * p.other.launcher_s for p in m.pairs]),
        "rounds_s": {
            "kill": rounded([k.total_s for k in m.kills]),
            "freeze": rounded([f.total_s for f in m.freezes]),
            "join": rounded(m.joins),
            "torchrun_kill": rounded([k.total_s for k in m.torch_kills]),
            "throughput_of_stock": rounded([p.ours.steps_per_s / p.other.steps_per_s for p in m.pairs]),
        },
    }


def phases(recoveries: Sequence[Recovery]) -> dict[str, float]:
    """Return the median of each phase."""
    return {p: round(statistics.median(r.phases_s[p] for r in recoveries), 3) for p in PHASES if recoveries}


def rounded(values: Sequence[float]) -> list[float]:
    return [round(v, 3) for v in values]
