"""What every source keeps to, and what each knows of its own world."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discovery.file import File
from discovery.hosts import Host, Hosts, SourceError
from discovery.kubernetes import Slots, hosts_of_pods
from discovery.ray import hosts_of
from discovery.static import Static
from tests.discovery.cases import CASES, Case, PodsCase, ServiceCase, SlurmCase, wait_fails, wait_found
from tests.discovery.cluster import PODS, SLICES, endpoints, pod


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    case = CASES[request.param](tmp_path)
    yield case
    case.close()


def found(case: Case, *numbers: int) -> Callable[[Hosts], bool]:
    return lambda hosts: hosts.hosts == tuple(Host(case.name(n), 2) for n in numbers)


# --- the contract


def test_it_finds_the_hosts_in_their_order(case: Case) -> None:
    case.show(1, 2, 3)
    assert found(case, 1, 2, 3)(case.source.find(5.0))


def test_it_follows_hosts_that_come_and_go(case: Case) -> None:
    case.show(1, 2)
    wait_found(case.source, found(case, 1, 2))
    case.show(1, 2, 3)
    wait_found(case.source, found(case, 1, 2, 3))
    case.show(3)
    wait_found(case.source, found(case, 3))


def test_none_is_an_answer(case: Case) -> None:
    case.show(1)
    wait_found(case.source, found(case, 1))
    case.show()
    wait_found(case.source, found(case))


def test_a_failure_is_an_error_and_never_an_empty_answer(case: Case) -> None:
    case.show(1)
    wait_found(case.source, found(case, 1))
    case.fail()
    wait_fails(case.source, 5.0)
    case.recover()
    wait_found(case.source, found(case, 1))


def test_it_fails_at_its_start_as_later(case: Case) -> None:
    case.show(1)
    case.fail()
    reason, _ = wait_fails(case.source, 5.0)
    assert reason
    case.recover()
    wait_found(case.source, found(case, 1))


def test_it_keeps_to_its_time_when_nothing_answers(case: Case) -> None:
    case.show(1)
    case.hang()
    reason, took_s = wait_fails(case.source, 0.3)
    assert took_s < 1.0
    assert "no answer within 0.3 s" in reason
    case.recover()
    wait_found(case.source, found(case, 1))


def test_it_has_a_name_and_a_period(case: Case) -> None:
    assert case.source.name
    assert 0.1 <= case.source.period_s <= 60.0


# --- static, file


def test_static_hosts_are_always_there() -> None:
    assert Static(["a:2", "b"], slots=4).find(1.0).hosts == (Host("a", 2), Host("b", 4))


def test_a_file_that_is_being_written_is_not_read_as_fewer_hosts(tmp_path: Path) -> None:
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps(["a:1", "b:1"])[:9])
    with pytest.raises(SourceError, match="not JSON as a whole"):
        File(path).find(1.0)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(SourceError, match="can be used"):
        File(path).find(1.0)


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("a:1\n")
    source = File(path)
    assert source.find(1.0) is source.find(1.0)


# --- Slurm


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[SlurmCase]:
    case = SlurmCase(tmp_path)
    yield case
    case.close()


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        ("ALLOCATED", True),
        ("MIXED", True),
        ("IDLE", True),
        ("MIXED+CLOUD", True),
        ("ALLOCATED+RESERVED", True),
        ("MIXED+DRAIN", False),
        ("IDLE+DRAIN", False),
        ("ALLOCATED+DRAIN", False),
        ("DOWN", False),
        ("DOWN*", False),
        ("IDLE*", False),
        ("DOWN+CLOUD+NOT_RESPONDING", False),
        ("ALLOCATED+FAIL", False),
        ("MIXED+MAINTENANCE", False),
        ("IDLE+REBOOT_REQUESTED", False),
        ("ALLOCATED+POWERING_DOWN", False),
        ("FUTURE", False),
        ("UNKNOWN", False),
    ],
)
def test_a_node_is_used_only_in_a_state_that_takes_work(slurm: SlurmCase, state: str, usable: bool) -> None:
    slurm.show(1, state=state)
    hosts = slurm.source.find(5.0)
    assert hosts.hosts == ((Host("n1", 2),) if usable else ())
    assert [state in left.reason for left in hosts.left_out] == ([] if usable else [True])


@pytest.mark.parametrize("job", ["PENDING", "SUSPENDED", "COMPLETED", "PREEMPTED", "TIMEOUT"])
def test_a_job_that_does_not_run_has_no_hosts(slurm: SlurmCase, job: str) -> None:
    slurm.show(1, job=job)
    hosts = slurm.source.find(5.0)
    assert hosts.hosts == ()
    assert hosts.left_out[0].reason == f"its state is {job}, expected RUNNING"


@pytest.mark.parametrize(
    ("gres", "slots"), [("gres/gpu:4", 4), ("gpu:a100:8", 8), ("gres/gpu:tesla-v100:2", 2), ("N/A", 1), ("", 1)]
)
def test_slots_are_the_gpus_that_the_job_has_on_a_node(slurm: SlurmCase, gres: str, slots: int) -> None:
    slurm.show(1, gres=gres)
    assert slurm.source.find(5.0).hosts == (Host("n1", slots),)


def test_slurm_is_asked_for_this_job_only(slurm: SlurmCase) -> None:
    slurm.show(1, 2)
    slurm.source.find(5.0)
    calls = (slurm.programs.folder / "calls").read_text().splitlines()
    assert calls[0] == "squeue --noheader --jobs 7 --format %T|%N|%b"
    assert calls[1:] == ["scontrol show hostnames n[1,2]", "scontrol show node n[1,2] --oneliner"]


# --- Ray


def node(name: str, *, alive: bool = True, **resources: float) -> dict[str, object]:
    return {"NodeManagerHostname": name, "NodeManagerAddress": "10.0.0.1", "Alive": alive, "Resources": resources}


@pytest.mark.parametrize(
    ("nodes", "resource", "per_slot", "expected"),
    [
        ([node("a", CPU=4.0)], None, 1.0, [Host("a", 4)]),
        ([node("a", CPU=4.0, GPU=2.0)], None, 1.0, [Host("a", 2)]),
        ([node("a", CPU=4.0, GPU=2.0)], "CPU", 2.0, [Host("a", 2)]),
        ([node("a", CPU=4.0), node("b", alive=False, CPU=4.0)], None, 4.0, [Host("a", 1)]),
        ([node("a", CPU=0.5), node("b", CPU=1.0)], None, 1.0, [Host("b", 1)]),
        ([node("a")], None, 1.0, []),
        ([], None, 1.0, []),
    ],
)
def test_ray_nodes_that_are_alive_and_large_enough_are_hosts(
    nodes: list[dict[str, object]], resource: str | None, per_slot: float, expected: list[Host]
) -> None:
    assert list(hosts_of(nodes, resource, per_slot).hosts) == expected


# --- Kubernetes


def with_status(**status: object) -> dict[str, object]:
    made = pod("pod-1", "10.0.0.1")
    made["status"] |= status
    return made


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (pod("pod-1", "10.0.0.1", slots=4), "10.0.0.1:4"),
        (pod("pod-1", "10.0.0.1", slots=0), "10.0.0.1:1"),
        (pod("pod-1", "10.0.0.1", slots=4, annotations={"elastic/slots": "2"}), "10.0.0.1:2"),
        (pod("pod-1", "10.0.0.1", annotations={"elastic/slots": "many"}), "expected a whole number"),
        (pod("pod-1", "10.0.0.1", annotations={"elastic/slots": "0"}), "0 slots"),
        (pod("pod-1", "10.0.0.1", ready=False), "not ready"),
        (pod("pod-1", "10.0.0.1", deletionTimestamp="2026-01-01T00:00:09Z"), "terminating"),
        (with_status(phase="Pending"), "phase is Pending"),
        (with_status(phase="Failed"), "phase is Failed"),
        (with_status(conditions=[]), "not ready"),
        (with_status(podIP=""), "no host name"),
        (
            with_status(conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]),
            "about to be taken away: PreemptionByScheduler",
        ),
    ],
)
def test_a_pod_is_a_host_while_it_is_ready(made: dict[str, object], expected: str) -> None:
    hosts = hosts_of_pods([made], Slots())
    if hosts.hosts:
        assert hosts.hosts[0].line == expected
    else:
        assert expected in hosts.left_out[0].reason


def test_a_pod_may_be_called_by_its_stable_name() -> None:
    hosts = hosts_of_pods([pod("pod-1", "10.0.0.1")], Slots(), "hostname")
    assert hosts.hosts[0].name == "pod-1.workers.train.svc"


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[PodsCase]:
    case = PodsCase(tmp_path)
    yield case
    case.close()


def test_a_watch_that_breaks_goes_on_where_it_was_without_a_new_list(pods: PodsCase) -> None:
    pods.show(1)
    wait_found(pods.source, found(pods, 1))
    pods.show(1, 2)
    wait_found(pods.source, found(pods, 1, 2))
    seen = str(pods.server.version)
    pods.server.drop_watches()
    wait_found(pods.source, lambda _: seen in pods.server.watches())
    pods.show(1, 2, 3)
    wait_found(pods.source, found(pods, 1, 2, 3))
    assert pods.server.lists() == 1


def test_a_version_that_the_server_has_forgotten_leads_to_a_new_list(pods: PodsCase) -> None:
    pods.show(1)
    wait_found(pods.source, found(pods, 1))
    pods.server.refuse = 503
    pods.server.drop_watches()
    wait_fails(pods.source, 1.0)
    pods.show(2, 3)
    pods.server.forget()
    pods.server.refuse = 0
    wait_found(pods.source, found(pods, 2, 3))
    assert pods.server.lists() >= 2


def test_a_bookmark_moves_the_version_on(pods: PodsCase) -> None:
    pods.show(1)
    wait_found(pods.source, found(pods, 1))
    pods.server.bookmark(PODS)
    marked = str(pods.server.version)
    wait_marked(pods, marked)
    assert pods.server.lists() == 1


def wait_marked(pods: PodsCase, version: str) -> None:
    """Break watches until one is begun from that version."""
    wait_found(pods.source, lambda _: pods.server.drop_watches() is None and version in pods.server.watches())


def test_pods_of_another_label_are_no_hosts(pods: PodsCase) -> None:
    pods.server.put(PODS, pod("pod-9", "10.0.0.9", labels={"app": "web"}))
    pods.show(1)
    pods.server.put(PODS, pod("pod-9", "10.0.0.9", labels={"app": "web"}))
    wait_found(pods.source, found(pods, 1))


def test_an_answer_of_401_says_so(pods: PodsCase) -> None:
    pods.server.refuse = 401
    assert "401" in wait_fails(pods.source, 2.0)[0]


def test_endpoints_that_are_not_ready_or_terminating_are_left_out(tmp_path: Path) -> None:
    case = ServiceCase(tmp_path)
    slices = endpoints("workers-1", ("10.0.0.1", True, False), ("10.0.0.2", False, False), ("10.0.0.3", True, True))
    case.server.put(SLICES, slices)
    hosts = wait_found(case.source, found(case, 1))
    assert [(left.what, left.reason) for left in hosts.left_out] == [
        ("10.0.0.2", "its endpoint is not ready"),
        ("10.0.0.3", "its endpoint is terminating"),
    ]
    case.close()
