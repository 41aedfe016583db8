"""Horovod's driver as jobs on Ray use it: it ends, whoever waits in it."""

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.http.http_server import RendezvousServer

from elastic.launch.ray.driver import Driver
from tests.contract.cluster import Hosts

PATIENCE_S = 20.0


class Job:
    """A job whose slots end when they are told to, or when the test lets them fail."""

    def __init__(self, **slots: int) -> None:
        self.rendezvous = RendezvousServer()
        self.driver = Driver(self.rendezvous, Hosts(**slots), min_num_proc=1, max_num_proc=8, timeout=PATIENCE_S)
        self.port = self.rendezvous.start(create_rendezvous_handler(self.driver))
        self.failing = {host: threading.Event() for host in slots}
        self._pool = ThreadPoolExecutor()
        self.driver.start(sum(slots.values()), self._look_after)

    def _look_after(self, slot: SlotInfo, events: list[threading.Event]) -> tuple[int, float]:
        while not any(event.is_set() for event in [*events, self.failing[slot.hostname]]):
            time.sleep(0.01)
        return 1, time.time()

    def ask(self, host: str) -> "Future[bytes]":
        """Ask for a rank, as a worker does that is ready for the next world."""
        url = f"http://127.0.0.1:{self.port}/rank_and_size/{host}:0"
        return self._pool.submit(lambda: urllib.request.urlopen(url, timeout=PATIENCE_S).read())

    def wait_counted(self, *hosts: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not all(self.driver.is_counted(host, 0) for host in hosts):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def close(self) -> None:
        """Close everything as the launcher does; in this order."""
        self.driver.finish()
        self.driver.stop()
        self.rendezvous._httpd.server_close()
        self._pool.shutdown()


@pytest.fixture
def begin() -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def begin(**slots: int) -> Job:
        jobs.append(Job(**slots))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.close()


def within(action: Callable[[], object]) -> None:
    """Do it in a thread, which must end in time."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "it waits for ever"


def test_a_job_ends_though_one_slot_has_failed_and_another_asks_for_its_rank(begin: Callable[..., Job]) -> None:
    threads = threading.active_count()
    job = begin(alpha=1, beta=1, gamma=1)
    job.failing["alpha"].set()
    answer = job.ask("beta")
    job.wait_counted("alpha", "beta")
    job.driver.finish()
    within(job.driver.get_results)
    within(job.close)
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        answer.result(PATIENCE_S)
    assert threading.active_count() == threads


def test_a_job_that_has_no_slots_yet_ends() -> None:
    rendezvous = RendezvousServer()
    driver = Driver(rendezvous, Hosts(), min_num_proc=1, max_num_proc=1, timeout=PATIENCE_S)
    rendezvous.start(create_rendezvous_handler(driver))
    with ThreadPoolExecutor() as pool:
        started = pool.submit(driver.start, 1, None)
        driver.finish()
        with pytest.raises(RuntimeError, match="shutdown"):
            started.result(PATIENCE_S)
    driver.stop()
    rendezvous._httpd.server_close()


def test_a_slot_without_room_leaves_the_others_of_its_host(begin: Callable[..., Job]) -> None:
    job = begin(alpha=2, beta=1)
    job.driver.no_room("beta", 0)
    job.driver.no_room("alpha", 1)
    for host in ("alpha", "beta"):
        job.driver._host_manager.blacklist(host)
    assert not job.driver._host_manager.is_blacklisted("alpha")
    assert job.driver._host_manager.current_hosts.get_slots("alpha") == 1
    assert job.driver._host_manager.is_blacklisted("beta")
