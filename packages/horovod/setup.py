"""Build Horovod's source release as `uv sync` would, for those who install with plain pip.

Nothing is decided here: the build settings are those of the project's pyproject.toml, the version and
the hash of the release those of its uv.lock. Settings named HOROVOD_* in the environment win, which
is how a GPU build is asked for.
"""

# ruff: noqa: INP001 - a build script is run, not imported

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

PROJECT = Path(__file__).resolve().parents[2]

# TensorFlow 2.21 no longer exports this function, which mpi_ops.cc declares and calls in GPU builds.
INCLUDE = '#include "tensorflow/compiler/xla/stream_executor/stream.h"\n'
DEFINITION = """\
namespace stream_executor {
namespace gpu {
GpuStreamHandle AsGpuStreamValue(Stream* stream) {
  return static_cast<GpuStreamHandle>(stream->platform_specific_handle().stream);
}
} // namespace gpu
} // namespace stream_executor
"""


def build_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to build with: the environment's HOROVOD_*, then the project's, then the rest."""
    pyproject = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    settings = pyproject["tool"]["uv"]["extra-build-variables"]["horovod"]
    chosen = {name: value for name, value in environ.items() if name.startswith("HOROVOD_")}
    return {**environ, **settings, **chosen}


def locked_requirement() -> str:
    """Return the release that uv.lock pins, as a line of a requirements file with its hash."""
    lock = tomllib.loads((PROJECT / "uv.lock").read_text())
    horovod = next(package for package in lock["package"] if package["name"] == "horovod")
    return f"horovod=={horovod['version']} --hash={horovod['sdist']['hash']}"


def define_stream_value(source: Path) -> None:
    """Add to Horovod's TensorFlow binding the one function that a GPU build misses.

    Raises:
        RuntimeError: when the source is not the one that this edit was written for.
    """
    binding = source / "horovod" / "tensorflow" / "mpi_ops.cc"
    text = binding.read_text()
    if text.count(INCLUDE) != 1:
        raise RuntimeError(
            f"expected one line {INCLUDE.strip()!r} in {binding.name}; this GPU edit is for Horovod 0.28.1"
        )
    binding.write_text(text.replace(INCLUDE, INCLUDE + DEFINITION))


class BuildRelease(bdist_wheel):
    """Puts the wheel of the real Horovod where the wheel of this folder would go."""

    def run(self) -> None:
        environment = build_environment(os.environ)

        def pip(command: str, *arguments: str | Path) -> None:
            # Without isolation: the requirements of pyproject.toml are already around us.
            line = [sys.executable, "-m", "pip", command, "--no-deps", "--no-build-isolation", *arguments]
            subprocess.run(line, env=environment, check=True)

        with tempfile.TemporaryDirectory(prefix="horovod-build-") as name:
            folder = Path(name)
            requirements = folder / "requirements.txt"
            requirements.write_text(locked_requirement() + "\n")
            pip("download", "--no-binary", ":all:", "--require-hashes", "--dest", folder, "--requirement", requirements)
            (archive,) = folder.glob("horovod-*.tar.gz")
            shutil.unpack_archive(archive, folder)  # its hash was checked just now
            source = archive.with_name(archive.name.removesuffix(".tar.gz"))
            if environment.get("HOROVOD_GPU_OPERATIONS"):
                define_stream_value(source)
            pip("wheel", "--wheel-dir", self.dist_dir, source)


setup(cmdclass={"bdist_wheel": BuildRelease}, packages=[], py_modules=[])
