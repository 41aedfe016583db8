"""What each system gains under kills, as curves over time."""

from pathlib import Path
from typing import Any

from benchmarks.plot import OURS, TEXT

PICTURE = Path(__file__).with_name("goodput.svg")
SHADES = ("#9aa4b2", "#8250df", "#2da44e", "#57ab5a", "#d4a72c", "#cf222e")  # one a peer


def draw(f: dict[str, Any], path: Path = PICTURE) -> None:
    """Write the picture: the share of an undisturbed run's steps that has been gained, by second."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "goodput", "svg.fonttype": "none", "font.size": 9, "text.color": TEXT}):
        figure = Figure(figsize=(8, 4), layout="constrained")
        axes = figure.subplots()
        axes.set_title(f"Steps gained under a SIGKILL every {f['every_s']:.0f} s, of an undisturbed run's", fontsize=10)
        axes.plot([0, f["seconds"]], [0, 1], color=TEXT, linewidth=0.8, linestyle=":", label="undisturbed")
        shades = iter(SHADES)
        for name, system in f["systems"].items():
            color = OURS if name == "ours" else next(shades)
            share = f"{system['words']}: {system['goodput']['median']:.2f}"
            axes.plot(range(len(system["curve"]) + 1), [0, *system["curve"]], color=color, label=share)
        axes.set_xlim(0, f["seconds"])
        axes.set_ylim(0, 1.05)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_formatter("{x:g} s")
        axes.legend(frameon=False, fontsize=8, loc="upper left")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})
