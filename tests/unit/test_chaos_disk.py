"""The small disk, in a process of its own: it enters another mount namespace."""

import subprocess
import sys
from pathlib import Path

import pytest

from elastic.chaos.disk import obstacle

STORY = """
import errno, sys
from pathlib import Path
from elastic.chaos.disk import Disk

folder = Path(sys.argv[1]) / "checkpoints"
folder.mkdir()
(folder / "before").write_text("before")
disk = Disk(folder, 2)
disk.open()

def refusal(name):
    try:
        (folder / name).write_bytes(bytes(1 << 14))
    except OSError as error:
        return errno.errorcode[error.errno]
    return None

assert (folder / "before").read_text() == "before"
assert refusal("first") is None
disk.fill()
assert refusal("second") == "ENOSPC"
disk.free()
assert refusal("third") is None
disk.set_read_only(True)
assert refusal("fourth") == "EROFS"
disk.set_read_only(False)
assert refusal("fifth") is None
print("ready", flush=True)
sys.stdin.readline()
disk.close()
print(sorted(p.name for p in folder.iterdir()), flush=True)
"""


@pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))
def test_a_small_disk_fills_up_refuses_writes_and_leaves_its_files(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STORY, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    folder = tmp_path / "checkpoints"
    assert [p.name for p in folder.iterdir()] == ["before"]  # nobody else sees the disk
    assert process.communicate("go on\n", timeout=10)[0] == "['before', 'fifth', 'first', 'second', 'third']\n"
    assert sorted(p.name for p in folder.iterdir()) == ["before", "fifth", "first", "second", "third"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoints"]
