"""The figures as Markdown."""

from typing import Any

Figure = dict[str, float]
NONE: Figure = {"n": 0}


def table(f: dict[str, Any]) -> str:
    """Return the tables and what a reader must know about them; a dash stands for what was not measured."""
    again = f"{whole(f['torchrun_steps_done_again_per_kill'])}"
    lines = [
        "| fault | ours | stock Horovod Elastic | torchrun |",
        "| --- | --- | --- | --- |",
        row("SIGKILL of a worker -> next step on both", f["kill_s"], f["stock_kill"], f["torchrun_kill_s"]),
        row("SIGSTOP of a worker -> next step on both", f["freeze_s"], f["stock_freeze"], f["torchrun_freeze"]),
        row("a slot added on a warm host: incumbents' pause", f["join_pause_s"], f["stock_join_pause_s"], []),
        f"| steps done again per kill | {whole(f['steps_done_again_per_kill'])} | - | {again} |",
        "",
        "| two workers that train, pool idle | ours | static stock Horovod | ours / stock, of pairs of windows |",
        "| --- | --- | --- | --- |",
        rates("steps/s", f["steps_per_s"], f["stock_steps_per_s"], f["throughput_of_stock"]),
        rates(
            "CPU ms a step, both workers",
            f["worker_cpu_ms_per_step"],
            f["stock_worker_cpu_ms_per_step"],
            f["worker_cpu_of_stock"],
        ),
        rates("CPU ms a step, agents and pool", f["agents_cpu_ms_per_step"], NONE, NONE),
        rates("CPU ms a step, launcher", f["launcher_cpu_ms_per_step"], f["stock_launcher_cpu_ms_per_step"], NONE),
        "",
        *notes(f),
    ]
    return "\n".join(lines)


def row(fault: str, *systems: Figure | list[str]) -> str:
    """Return a row of durations, or of what became of the job instead."""
    return f"| {fault} | {' | '.join('; '.join(s) or '-' if isinstance(s, list) else seconds(s) for s in systems)} |"


def rates(what: str, ours: Figure, stock: Figure, ratio: Figure) -> str:
    """Return a row of medians, and of the spread of their ratio."""
    share = f"{ratio['median']:.3f} ({ratio['min']:.3f} to {ratio['max']:.3f}, n = {ratio['n']})" if ratio["n"] else "-"
    return f"| {what} | {median(ours, 1)} | {median(stock, 1)} | {share} |"


def seconds(figure: Figure) -> str:
    if not figure["n"]:
        return "-"
    return f"{figure['median']:.2f} s ({figure['min']:.2f} to {figure['max']:.2f}, n = {figure['n']})"


def median(figure: Figure, digits: int) -> str:
    return f"{figure['median']:.{digits}f}" if figure["n"] else "-"


def whole(figure: Figure) -> str:
    """Return a count's median, and its spread where there is one."""
    if not figure["n"]:
        return "-"
    same = figure["min"] == figure["max"]
    return median(figure, 0) if same else f"{median(figure, 0)} ({figure['min']:.0f} to {figure['max']:.0f})"


def notes(f: dict[str, Any]) -> list[str]:
    """Return the sentences below the tables."""
    host = f["machine"]
    told = ["Medians (least to most, n rounds)."]
    if f["kill_phases_s"]:
        phases = ", ".join(f"{name} {value:.3f}" for name, value in f["kill_phases_s"].items())
        cover = 100 * f["phases_cover"]["median"]
        told += [f"Phases of a kill, medians in seconds: {phases}; they cover {cover:.0f} % of the time."]
    return [
        *told,
        f"torchrun: {f['torchrun']}.",
        f"{host['cpu']}, {host['cores']} cores, {host['memory']}, {host['date']};",
        "`uv run --group torch python -m benchmarks.recovery`.",
    ]
