"""How a benchmark tells its figures: JSON for machines, a table and a plot for the README."""

import json
import platform
import re
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

README = Path(__file__).parents[1] / "README.md"


def end_when_told() -> None:
    """Let SIGTERM end this process as an exception does, so that the jobs it has started end with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def say(text: str) -> None:
    """Tell whoever watches what has been measured just now."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, least, most and count."""
    if not values:
        return {"n": 0}
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
        "n": len(values),
    }


def machine() -> dict[str, Any]:
    """Return what a reader must know about where the figures come from."""
    cpu = next((line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine())
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    return {"cpu": cpu, "cores": psutil.cpu_count(), "memory": memory, "date": time.strftime("%Y-%m-%d")}


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def tell(result: dict[str, Any], *, as_json: bool, table: str) -> None:
    """Print the result as JSON or as a table."""
    print(json.dumps(result, indent=1) if as_json else table)


def into_readme(name: str, text: str) -> None:
    """Replace what stands between the README's markers of that name."""
    whole = README.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- {name}:begin -->).*?(<!-- {name}:end -->)", re.DOTALL)
    if not pattern.search(whole):
        raise SystemExit(f"README.md has no markers <!-- {name}:begin --> ... <!-- {name}:end -->")
    README.write_text(pattern.sub(lambda m: f"{m[1]}\n{text}\n{m[2]}", whole), encoding="utf-8")
