from pathlib import Path

import pytest

from elastic.filesystem import is_shared, kind_of

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:26 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw
41 22 0:40 / /data rw,relatime shared:9 master:2 - nfs4 server:/export rw,vers=4.2
42 41 254:3 / /data/local rw - xfs /dev/sdb1 rw
43 22 0:41 / /with\\040blank rw - fuse.sshfs host: rw
44 22 0:42 / /over rw - ext4 /dev/a rw
45 22 0:43 / /over rw - nfs server:/b rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/home/me/runs/job", "ext4"),
        ("/dev/shm/run", "tmpfs"),
        ("/data", "nfs4"),
        ("/data/run", "nfs4"),
        ("/database/run", "ext4"),
        ("/data/local/run", "xfs"),
        ("/with blank/run", "fuse.sshfs"),
        ("/over/run", "nfs"),  # the later mount hides the earlier one
    ],
)
def test_a_path_lies_on_what_is_mounted_nearest_above_it(path: str, kind: str) -> None:
    assert kind_of(Path(path), MOUNTS) == kind


def test_without_mounts_nothing_can_be_told() -> None:
    assert kind_of(Path("/run"), "") == ""


@pytest.mark.parametrize(("kind", "shared"), [("ext4", False), ("tmpfs", False), ("nfs4", True), ("fuse.sshfs", True)])
def test_what_other_machines_may_write_to_is_shared(
    kind: str, shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 254:0 / / rw - {kind} source rw\n")
    monkeypatch.setattr("elastic.filesystem.MOUNTS", mounts)
    assert is_shared(tmp_path / "run") is shared


def test_a_machine_that_does_not_tell_is_taken_to_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic.filesystem.MOUNTS", tmp_path / "absent")
    assert is_shared(tmp_path)


def test_this_machines_temporary_folder_is_its_own(tmp_path: Path) -> None:
    assert not is_shared(tmp_path)
