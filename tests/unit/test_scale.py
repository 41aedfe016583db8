"""The benchmark of large worlds: workers ask what Horovod's core asks, and growth is told rightly."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.http.http_server import RendezvousHandler, RendezvousServer

from benchmarks.scale import PHASES, exponents, figures, reformed, table
from benchmarks.scale_cluster import Cpu, Mark
from benchmarks.scale_mesh import Place, Store, World
from tests.contract.launchers import DEADLINE_S

# What a real worker of rank 1 of 2 was seen to send, of the first and the last of its six meetings.
GLOBALLY = [
    ("PUT", "/global/rank_1"),
    ("GET", "/global/rank_0"),
    ("PUT", "/global/1"),
    ("GET", "/global/0"),
    ("GET", "/global/0"),
    ("DELETE", "/global/1"),
]
LAST = [("PUT", "/cross_1{set}/rank_0"), ("PUT", "/cross_1{set}/0"), ("DELETE", "/cross_1{set}/0")]


def met(*places: Place) -> tuple[list[World], list[list[tuple[str, str, int]]]]:
    """Let workers of one host meet at Horovod's own rendezvous; return their worlds and their requests."""
    server = RendezvousServer()
    port = server.start(RendezvousHandler)
    server.init([SlotInfo("h0", p.rank, p.local_rank, 0, p.size, p.local_size, 1) for p in places])
    asked: list[list[tuple[str, str, int]]] = [[] for _ in places]

    class Recording(Store):
        def __init__(self, rank: int) -> None:
            super().__init__("127.0.0.1", port)
            self._rank = rank

        def call(self, method: str, path: str, body: bytes = b"") -> bytes | None:
            answer = super().call(method, path, body)
            polled = answer is None and method == "GET" and "/rank_" not in path
            if not polled:  # the addresses of a peer that is late are asked for again, its host's name is not
                asked[self._rank].append((method, path, len(body)))
            return answer

    worlds = [World(Recording(p.rank), "h0", p) for p in places]
    try:
        with ThreadPoolExecutor(len(places)) as pool:
            for going in [pool.submit(world.meet) for world in worlds]:
                going.result(DEADLINE_S)
    finally:
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        stopping.join()
        server._httpd.server_close()
    return worlds, asked


def leave(worlds: list[World]) -> None:
    for world in worlds:
        world.leave()


def test_a_worker_asks_the_rendezvous_what_horovods_core_asks() -> None:
    worlds, asked = met(Place(0, 2, 0, 2, 0, 1), Place(1, 2, 1, 2, 0, 1))
    leave(worlds)
    mine = asked[1]
    assert [(method, path) for method, path, _ in mine[: len(GLOBALLY)]] == GLOBALLY
    assert {size for method, path, size in mine if method == "PUT" and path == "/global/1"} == {136}
    tail = [(method, re.sub(r"_process_set_hash_\w+", "{set}", path)) for method, path, _ in mine[-len(LAST) :]]
    assert tail == LAST
    told = [method for method, _, _ in mine if method != "GET"]  # what is there to get depends on who comes first
    assert told == ["PUT", "PUT", "DELETE"] * 6


def test_workers_agree_on_the_greatest_number() -> None:
    worlds, _ = met(*(Place(rank, 3, rank, 3, 0, 1) for rank in range(3)))
    with ThreadPoolExecutor(3) as pool:
        going = [pool.submit(world.agree, number) for world, number in zip(worlds, (4, 9, 2), strict=True)]
        assert [g.result(DEADLINE_S) for g in going] == [9, 9, 9]
    leave(worlds)


def test_a_worker_that_dies_is_noticed_by_all_who_wait_for_it() -> None:
    worlds, _ = met(Place(0, 2, 0, 2, 0, 1), Place(1, 2, 1, 2, 0, 1))
    worlds[1].leave()
    with pytest.raises(OSError, match=r"hung up|reset|pipe"):
        worlds[0].step()
    worlds[0].leave()


def mark(rank: int, lost: float, placed: float, met_: float, done: float, told: float = 0.0) -> Mark:
    return Mark(rank, "h0", rank, 2, 2, lost, told, placed - 0.1, placed, met_, done, 30, 0.05)


def test_the_phases_of_a_loss_add_up_and_end_with_the_last_worker() -> None:
    marks = [mark(0, 10.1, 10.3, 10.8, 11.0), mark(1, 0.0, 10.5, 10.7, 11.0, told=10.2)]
    found = reformed(marks, 10.0, 60, 2, Cpu(0.1, 0.2, 0.3))
    assert found.phases_s == pytest.approx(dict(zip(PHASES, (0.1, 0.4, 0.3, 0.2), strict=True)))
    assert found.total_s == pytest.approx(1.0)
    assert found.newcomer_s == pytest.approx(0.2)
    assert found.asked == 60


def test_growth_is_told_as_an_exponent() -> None:
    squared = exponents({2: 4.0, 8: 64.0, 32: 1024.0})
    assert squared == {"all": 2.0, "between": {"2-8": 2.0, "8-32": 2.0}}
    assert exponents({2: 1.0}) == {"all": None, "between": {}}
    assert exponents({2: 0.0, 8: 1.0}) == {"all": None, "between": {}}


def test_a_size_that_did_not_form_is_a_row_with_its_reason() -> None:
    one = reformed([mark(0, 10.1, 10.3, 10.8, 11.0), mark(1, 0.0, 10.5, 10.7, 11.0, 10.2)], 10.0, 60, 2, Cpu(1, 1, 1))
    text = table(figures({2: [one]}, 8, {128: "3 of 128 workers have met within 300 s"}))
    assert "| 2 | 1.00 s (1.00 to 1.00, n = 1) | 0.100 s | 0.400 s | 0.300 s | 0.200 s | 60 | 2 | 1.00 s |" in text
    assert "| 128 | 3 of 128 workers have met within 300 s |" in text
