"""A folder like a newcomer's clone, in which the README's commands run as they stand.

`uv run` and `pip install uv` stand for the environment that the tests run in; nothing else is replaced. Where it is
allowed, a script has a process namespace of its own: `pgrep` finds no other job, and nothing is left of it.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.readme import FENCE, README, ROOT, Block

BIN = Path(sys.executable).parent
CLONED = ("benchmarks", "configs", "discovery", "elastic", "tests", "README.md", "pyproject.toml")
LATER_S = 12
UV = """#!/bin/sh
[ "$1" = run ] || { echo "uv $1 is not for tests" >&2; exit 64; }
shift
[ "$1" = --group ] && shift 2
exec "$@"
"""
PIP = """#!/bin/sh
[ "$*" = "install uv" ] || { echo "pip $* is not for tests" >&2; exit 64; }
"""


def alone() -> list[str]:
    """Return what starts a command in a process namespace of its own; nothing where that is not allowed."""
    line = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None:
        return []
    return line if subprocess.run([*line, "true"], capture_output=True, check=False).returncode == 0 else []


class Sandbox:
    """The folder; `start` and `run` take scripts for bash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._alone = alone()
        self._scripts = 0

    @property
    def is_alone(self) -> bool:
        """Whether scripts see no other processes than their own."""
        return bool(self._alone)

    def open(self) -> None:
        """Make it, with the files that the README shows."""
        for name in CLONED:
            (self.folder / name).symlink_to(ROOT / name)
        shims = self.folder / ".shims"
        shims.mkdir()
        for name, text in (("uv", UV), ("pip", PIP)):
            (shims / name).write_text(text)
            (shims / name).chmod(0o755)
        for language, text in FENCE.findall(README):
            if language in ("python", "yaml"):
                (self.folder / text.partition("\n")[0].removeprefix("# ")).write_text(text)

    def start(self, script: str) -> subprocess.Popen[str]:
        """Run a script aside; it ends with its first command that fails."""
        self._scripts += 1
        file = (
            self.folder / ".shims" / f"script-{self._scripts}"
        )  # a command line that held it would be found by `pgrep`
        file.write_text(script)
        path = f"{self.folder / '.shims'}:{BIN}:{os.environ['PATH']}"
        return subprocess.Popen(
            [*self._alone, "bash", "-euo", "pipefail", str(file)],
            cwd=self.folder,
            env=os.environ | {"PATH": path, "COLUMNS": "120"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, script: str, within_s: float) -> str:
        """Return what a script prints; it must end well."""
        process = self.start(script)
        try:
            output, _ = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            raise AssertionError(f"not done within {within_s:.0f} s:\n{script}\n---\n{output[-4000:]}") from None
        assert process.returncode == 0, f"exit code {process.returncode}:\n{script}\n---\n{output[-4000:]}"
        return output


def script_of(block: Block) -> str:
    """Return a block's script, in which what runs until it is stopped is stopped after a while."""
    lines = []
    for command in block.commands:
        kind = command.mark.kind if command.mark is not None else ""
        if kind == "until stopped":
            lines.append(f"timeout -s INT {LATER_S} {command.line.partition('  #')[0]} || [ $? = 124 ]")
        elif kind != "not run":
            lines.append(command.line)
    return "\n".join(lines)
