import os
import subprocess
from pathlib import Path

import pytest

from elastic.launch.tolerant import tolerant


def test_what_is_written_arrives_line_by_line(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    stream = tolerant(fd)
    stream.write("one \u00e9\n")
    assert (tmp_path / "log").read_text(encoding="utf-8") == "one \u00e9\n"
    stream.write("two")
    stream.flush()
    assert (tmp_path / "log").read_text(encoding="utf-8").endswith("two")
    os.close(fd)


def test_a_full_disk_drops_what_does_not_fit_and_takes_what_fits_again(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a full disk needs the right to mount: {done.stderr.strip()}")
    try:
        fd = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        stream = tolerant(fd)
        for _ in range(1000):
            stream.write("x" * 63 + "\n")
        assert (folder / "log").stat().st_size == 4096
        subprocess.run(["mount", "-o", "remount,size=64k", str(folder)], check=True)
        stream.write("there is room again\n")
        assert (folder / "log").read_text().endswith("there is room again\n")
        os.close(fd)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
