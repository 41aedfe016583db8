import os
import socket
import stat
from pathlib import Path

import pytest

from elastic.agent.meeting import Meeting, is_ours, meeting_of
from elastic.errors import HostError


@pytest.fixture
def meeting(tmp_path: Path) -> Meeting:
    return Meeting(tmp_path / "agents" / "job")


@pytest.fixture
def lock(meeting: Meeting) -> int:
    meeting.open()
    lock = meeting.take_lock()
    assert lock is not None
    return lock


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_can_enter(meeting: Meeting) -> None:
    meeting.open()
    assert mode(meeting.folder) == 0o700
    assert mode(meeting.folder.parent) == 0o700


def test_a_generous_umask_opens_nothing(meeting: Meeting) -> None:
    before = os.umask(0)
    try:
        meeting.open()
        assert mode(meeting.folder) == 0o700
    finally:
        os.umask(before)


def test_it_can_be_opened_by_every_agent_of_the_host(meeting: Meeting) -> None:
    meeting.open()
    Meeting(meeting.folder).open()


@pytest.mark.parametrize("wide", [0o755, 0o770, 0o701, 0o720])
@pytest.mark.parametrize("which", ["folder", "parent"])
def test_a_directory_that_others_can_enter_is_refused(meeting: Meeting, which: str, wide: int) -> None:
    meeting.open()
    folder = meeting.folder if which == "folder" else meeting.folder.parent
    folder.chmod(wide)
    with pytest.raises(HostError, match=rf"{folder} is not a private directory.*TMPDIR"):
        meeting.open()


def test_a_link_to_a_private_directory_is_refused(meeting: Meeting, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    meeting.folder.parent.mkdir(mode=0o700)
    meeting.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostError):
        meeting.open()


def test_another_users_directory_is_refused(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting.open()
    monkeypatch.setattr("os.getuid", lambda: -5)
    with pytest.raises(HostError):
        meeting.open()


def test_one_agent_at_a_time_holds_the_lock(meeting: Meeting, lock: int) -> None:
    assert meeting.take_lock() is None
    os.close(lock)
    successor = meeting.take_lock()
    assert successor is not None
    os.close(successor)


def test_the_lock_is_not_passed_on_to_child_processes(lock: int) -> None:
    assert not os.get_inheritable(lock)
    os.close(lock)


def test_a_job_meets_on_each_host_in_a_place_of_its_own() -> None:
    places = {meeting_of(job, host).folder for job in ("10.0.0.1:1", "10.0.0.1:2") for host in ("alpha", "beta")}
    assert len(places) == 4
    assert meeting_of("10.0.0.1:1", "alpha") == meeting_of("10.0.0.1:1", "alpha")


def test_the_sockets_name_is_short_enough_for_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/tmp")
    assert len(str(meeting_of("a-long-name-of-a-host.example.org:54321", "h" * 200).socket)) < 108


def test_the_other_end_of_a_socket_is_known_by_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert is_ours(ours)
        monkeypatch.setattr("os.getuid", lambda: -5)
        assert not is_ours(ours)
