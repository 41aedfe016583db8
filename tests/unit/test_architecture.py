"""The arrows between the parts, and what may be loaded by whom."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(p.relative_to(ROOT) for part in ("elastic", "discovery") for p in (ROOT / part).rglob("*.py"))
HEAVY = ("tensorflow", "keras", "horovod", "ray", "kubernetes")

# What may import what is heavy: the package, or the file, by the heavy module's name.
MAY_LOAD = {
    "tensorflow": ("elastic.worker", "elastic.examples"),
    "keras": ("elastic.worker", "elastic.examples"),
    "horovod": ("elastic.worker", "elastic.examples", "elastic.launch.ray", "elastic.launch.horovodrun_main"),
    "ray": ("elastic.launch.ray", "discovery.ray"),
    "kubernetes": ("discovery.kubernetes",),
}

# Who must know nothing of whom.
BOTTOM = tuple(
    f"elastic.{name}"
    for name in (
        *("config", "jobfile", "events", "eventlog", "errors", "progress", "channel", "rundir"),
        *("filesystem", "heartbeats", "stragglers", "deeds", "listener", "route"),
    )
)
ABOVE_BOTTOM = ("elastic.cli", "elastic.launch", "elastic.agent", "elastic.worker", "elastic.views", "elastic.chaos")
FORBIDDEN = {
    **dict.fromkeys(BOTTOM, (*ABOVE_BOTTOM, "elastic.doctor", "elastic.examples")),
    "discovery": ("elastic",),
    "elastic.views": ("elastic.cli", "elastic.launch", "elastic.agent", "elastic.worker"),
    "elastic.chaos": ("elastic.cli", "elastic.agent", "elastic.worker"),
    "elastic.worker": ("elastic.cli", "elastic.launch", "elastic.agent", "elastic.views", "elastic.chaos"),
    "elastic.agent": ("elastic.cli", "elastic.launch", "elastic.worker", "elastic.chaos"),
    "elastic.launch": ("elastic.cli", "elastic.worker", "elastic.chaos"),
}


def name_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def inside(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(f"{p}.") for p in packages)


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the modules that a file imports, in functions and under TYPE_CHECKING too."""
    return frozenset(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides an arrow"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_files_are_found() -> None:
    assert {Path("elastic/cli.py"), Path("elastic/worker/optimizer.py"), Path("discovery/__init__.py")} <= set(FILES)
    assert "tensorflow" in imports(Path("elastic/worker/optimizer.py"))


@pytest.mark.parametrize("heavy", HEAVY)
def test_what_is_heavy_is_imported_by_few(heavy: str) -> None:
    users = {name_of(path) for path in FILES if any(inside(m, (heavy,)) for m in imports(path))}
    assert {user for user in users if not inside(user, MAY_LOAD[heavy])} == set()


@pytest.mark.parametrize("part", FORBIDDEN)
def test_the_arrows_point_one_way(part: str) -> None:
    wrong = {
        (name_of(path), module)
        for path in FILES
        if inside(name_of(path), (part,))
        for module in imports(path)
        if inside(module, FORBIDDEN[part])
    }
    assert wrong == set()


@pytest.mark.parametrize("part", FORBIDDEN)
def test_every_part_with_a_rule_exists(part: str) -> None:
    assert any(inside(name_of(path), (part,)) for path in FILES)


LIGHT = [m for m in map(name_of, FILES) if not inside(m, (*MAY_LOAD["horovod"], *MAY_LOAD["ray"], "elastic.__main__"))]


@pytest.mark.parametrize(
    "modules",
    [["elastic.cli"], ["elastic.agent.agent"], ["elastic.agent.start"], ["discovery"], LIGHT],
    ids=["cli", "agent", "start", "discovery", "all"],
)
def test_what_starts_fast_loads_nothing_heavy(modules: list[str]) -> None:
    code = f"import sys, {', '.join(modules)}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_line_explains_itself() -> None:
    line = [sys.executable, "-m", "elastic", "--help"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(command in done.stdout for command in ("run", "worker", "chaos", "doctor"))
