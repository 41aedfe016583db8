"""Notices of clouds, from small metadata servers that speak as the real ones do."""

import json
import queue
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from discovery.notices import azure, ec2, gce
from discovery.notices.notice import Notice, NoticeError, Watcher, cloud_here, source_of
from discovery.notices.posted import LASTS_S, Posted, post
from tests.discovery.metadata import Metadata


@pytest.fixture
def metadata(request: pytest.FixtureRequest) -> Iterator[Metadata]:
    server = Metadata(request.param)
    yield server
    server.close()


def at(cloud: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("metadata", [cloud], indirect=True)


# --- EC2


def spot(in_s: float) -> str:
    time_ = (datetime.now(UTC) + timedelta(seconds=in_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps({"action": "terminate", "time": time_})


@at("ec2")
def test_ec2_says_when_a_spot_instance_ends(metadata: Metadata) -> None:
    asked = ec2.Ec2(metadata.url)
    assert asked.look() is None
    metadata.bodies[ec2.SPOT] = spot(120.0)
    notice = asked.look()
    assert notice is not None
    assert notice.reason.startswith("EC2 will terminate this spot instance at ")
    assert notice.in_s == pytest.approx(120.0, abs=2.0)


@at("ec2")
def test_ec2_is_asked_for_one_session_and_for_another_when_that_has_expired(metadata: Metadata) -> None:
    asked = ec2.Ec2(metadata.url)
    asked.look()
    asked.look()
    assert metadata.given == 1
    metadata.tokens.clear()
    assert asked.look() is None
    assert metadata.given == 2


@at("ec2")
@pytest.mark.parametrize("heeded", [False, True])
def test_a_recommendation_counts_only_where_it_is_to_be_heeded(metadata: Metadata, heeded: bool) -> None:
    metadata.bodies[ec2.REBALANCE] = '{"noticeTime": "2026-01-01T00:00:00Z"}'
    notice = ec2.Ec2(metadata.url, rebalance=heeded).look()
    assert notice == (Notice("EC2 recommends to rebalance: this instance is at risk") if heeded else None)


@at("ec2")
def test_a_notice_in_an_unknown_form_is_still_one(metadata: Metadata) -> None:
    metadata.bodies[ec2.SPOT] = "soon"
    assert ec2.Ec2(metadata.url).look() == Notice("EC2 will take this spot instance: soon")


# --- GCE


@at("gce")
@pytest.mark.parametrize(
    ("preempted", "maintenance", "reason"),
    [
        ("FALSE", "NONE", None),
        ("TRUE", "NONE", "Google preempts this instance"),
        ("FALSE", "MIGRATE_ON_HOST_MAINTENANCE", None),
        ("FALSE", "TERMINATE_ON_HOST_MAINTENANCE", "Google will stop this instance for host maintenance"),
    ],
)
def test_google_says_that_an_instance_is_preempted(
    metadata: Metadata, preempted: str, maintenance: str, reason: str | None
) -> None:
    metadata.bodies |= {gce.PREEMPTED: preempted, gce.MAINTENANCE: maintenance}
    notice = gce.Gce(metadata.url).look()
    assert (notice.reason if notice else None) == reason


# --- Azure


def event(kind: str, *machines: str, in_s: float = 30.0) -> str:
    not_before = format_datetime(datetime.now(UTC) + timedelta(seconds=in_s), usegmt=True)
    found = {"EventId": "1", "EventType": kind, "Resources": machines, "NotBefore": not_before}
    return json.dumps({"DocumentIncarnation": 1, "Events": [found]})


@at("azure")
@pytest.mark.parametrize(
    ("kind", "machines", "reason"),
    [
        (None, (), None),
        ("Preempt", ("vm_1",), "Azure: Preempt of vm_1"),
        ("Preempt", ("vm_2",), None),
        ("Freeze", ("vm_1",), None),
        ("Terminate", ("vm_2", "vm_1"), "Azure: Terminate of vm_1"),
        ("Reboot", ("vm_1",), "Azure: Reboot of vm_1"),
    ],
)
def test_azure_says_what_will_happen_to_which_machine(
    metadata: Metadata, kind: str | None, machines: tuple[str, ...], reason: str | None
) -> None:
    metadata.bodies |= {azure.EVENTS: event(kind, *machines) if kind else '{"Events": []}', azure.NAME: "vm_1"}
    notice = azure.Azure(metadata.url).look()
    assert (notice.reason if notice else None) == reason
    if notice:
        assert notice.in_s == pytest.approx(30.0, abs=2.0)


@at("azure")
def test_an_event_that_has_begun_leaves_no_time(metadata: Metadata) -> None:
    started = json.dumps({"Events": [{"EventType": "Preempt", "Resources": ["vm_1"], "NotBefore": ""}]})
    metadata.bodies |= {azure.EVENTS: started, azure.NAME: "vm_1"}
    assert azure.Azure(metadata.url).look() == Notice("Azure: Preempt of vm_1", 0.0)


# --- all of them


@pytest.mark.parametrize("cloud", ["ec2", "gce", "azure"])
@pytest.mark.parametrize("status", [500, 503])
def test_a_server_in_trouble_is_an_error_and_no_notice(cloud: str, status: int) -> None:
    server = Metadata(cloud)
    server.status = status
    with pytest.raises(NoticeError, match=str(status)):
        source_of(cloud, server.url).look()
    server.close()
    with pytest.raises(NoticeError, match="refused"):
        source_of(cloud, server.url).look()


@pytest.mark.parametrize(
    ("vendor", "cloud"),
    [("Amazon EC2\n", "ec2"), ("Google\n", "gce"), ("Microsoft Corporation\n", "azure"), ("QEMU\n", None)],
)
def test_the_firmware_says_which_cloud_this_is(tmp_path: Path, vendor: str, cloud: str | None) -> None:
    (tmp_path / "vendor").write_text(vendor)
    assert cloud_here(tmp_path / "vendor") == cloud
    assert cloud_here(tmp_path / "none") is None


class Scripted:
    """Gives what it is told to, one at each look, the last one again and again."""

    def __init__(self, *script: Notice | NoticeError | None) -> None:
        self._script = list(script)

    def look(self) -> Notice | None:
        found = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(found, NoticeError):
            raise found
        return found


def test_a_watcher_outlives_errors_and_tells_again_and_again() -> None:
    told: queue.SimpleQueue[Notice] = queue.SimpleQueue()
    notice = Notice("soon", 30.0)
    watcher = Watcher(Scripted(None, NoticeError("down"), None, notice), 0.01, told.put)
    watcher.start()
    assert [told.get(timeout=5.0) for _ in range(3)] == [notice] * 3
    watcher.close()


# --- the folder


def test_a_posted_notice_holds_while_it_is_posted_again_and_a_little_longer(tmp_path: Path) -> None:
    posted = Posted(tmp_path / "notices")
    assert posted.read(0.0) == {}
    post(tmp_path / "notices", "node1", Notice("EC2 says so", 120.0))
    assert posted.read(10.0) == {"node1": "it has notice: EC2 says so"}
    assert posted.read(10.0 + LASTS_S) != {}
    assert posted.read(10.1 + LASTS_S) == {}
    time.sleep(0.01)
    post(tmp_path / "notices", "node1", Notice("EC2 says so", 20.0))
    assert posted.read(200.0) != {}


def test_what_is_no_notice_in_the_folder_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text("[]")
    post(tmp_path, "node1", Notice("soon"))
    assert list(Posted(tmp_path).read(0.0)) == ["node1"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    post(tmp_path / "file" / "notices", "node1", Notice("soon"))
    assert Posted(tmp_path / "file" / "notices").read(0.0) == {}
