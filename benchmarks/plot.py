"""The figures as a picture: how long training stands still, by fault and system."""

from pathlib import Path
from typing import Any

PICTURE = Path(__file__).with_name("recovery.svg")
OURS, OTHERS, TEXT = "#0969da", "#9aa4b2", "#24292f"
SHADES = ("#0b3d91", "#8250df", "#54aeff", "#2da44e", "#d4a72c")  # one a phase


def bars(f: dict[str, Any]) -> list[tuple[str, str, Any, dict[str, float]]]:
    """Return fault, system, what is known of the two (a spread of seconds, or words) and its phases."""
    found: list[tuple[str, str, Any, dict[str, float]]] = [
        ("SIGKILL", "ours", f["kill_s"], f["kill_phases_s"]),
        ("SIGKILL", "torchrun", f["torchrun_kill_s"], {}),
        ("SIGKILL", "stock Horovod Elastic", "; ".join(f["stock_kill"]), {}),
        ("SIGSTOP", "ours", f["freeze_s"], f["freeze_phases_s"]),
        ("SIGSTOP", "torchrun", "; ".join(f["torchrun_freeze"]), {}),
        ("SIGSTOP", "stock Horovod Elastic", "; ".join(f["stock_freeze"]), {}),
        ("slot added", "ours", f["join_pause_s"], {}),
        ("slot added", "stock Horovod Elastic", f["stock_join_pause_s"], {}),
    ]
    return [bar for bar in found if bar[2] and bar[2] != {"n": 0}]


def draw(f: dict[str, Any], path: Path = PICTURE) -> None:
    """Write the picture: above all systems on one scale, below our kill alone on its own."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = bars(f)
    heights = [len(rows) + 1, 1.2]
    with mpl.rc_context({"svg.hashsalt": "recovery", "svg.fonttype": "none", "font.size": 9, "text.color": TEXT}):
        figure = Figure(figsize=(8, 0.3 * sum(heights) + 1.6), layout="constrained")
        figure.suptitle("Until training goes on at full strength: median, and a line over all rounds", fontsize=10)
        above, below = figure.subplots(2, 1, height_ratios=heights)
        all_systems(above, rows)
        one_kill(below, f["kill_phases_s"])
        figure.legend(
            loc="outside lower center",
            ncols=len(SHADES),
            frameon=False,
            fontsize=8,
            title="phases of ours, seconds of the kill",
        )
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})


def all_systems(axes: Any, rows: list[tuple[str, str, Any, dict[str, float]]]) -> None:
    """Draw one bar a fault and system."""
    place, before, places = 0.0, rows[0][0], []
    for fault, system, known, phases in rows:
        place += 1.0 if fault == before else 1.5
        before = fault
        places.append(place)
        if isinstance(known, str):
            axes.text(0.08, place, known, va="center", style="italic")
            continue
        if phases:
            stack(axes, place, phases)
        else:
            axes.barh(place, known["median"], 0.72, color=OURS if system == "ours" else OTHERS)
        axes.plot([known["min"], known["max"]], [place, place], color=TEXT, linewidth=0.8)
        axes.text(known["max"] + 0.08, place, f"{known['median']:.2f} s", va="center", weight="bold")
    axes.set_yticks(places, [f"{fault}: {system}" for fault, system, *_ in rows])
    axes.set_xlim(0, 1.12 * max(known["max"] for _, _, known, _ in rows if not isinstance(known, str)))
    axes.invert_yaxis()
    plain(axes)


def one_kill(axes: Any, phases: dict[str, float]) -> None:
    """Draw where the time of one of our kills goes; the picture's legend names the phases."""
    for bar, (name, value) in zip(stack(axes, 0, phases), phases.items(), strict=True):
        bar.set_label(f"{name} {value:.3f} s")
    axes.set_yticks([0], ["SIGKILL: ours, enlarged"])
    plain(axes)


def stack(axes: Any, place: float, phases: dict[str, float]) -> list[Any]:
    """Draw the phases of a recovery one after the other; return their bars."""
    left, drawn = 0.0, []
    for shade, value in zip(SHADES, phases.values(), strict=True):
        drawn.append(axes.barh(place, value, 0.72, left=left, color=shade))
        left += value
    return drawn


def plain(axes: Any) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter("{x:g} s")
