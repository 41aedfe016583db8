"""The next world is made while the present one trains, under Horovod's own elastic driver."""

import os
import pickle
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from elastic.agent import ahead as ahead_module
from elastic.agent.ahead import GoalReached
from elastic.agent.announcements import read_request
from elastic.channel import HostsAnnounced, NextWorldReady
from tests.contract.cluster import NOBODY_MET, OVER, REMOVED, Cluster, Slot, wait_for
from tests.contract.launchers import LONG_S

READY = NextWorldReady(1, 1)
READY_AT_LAST = NextWorldReady(1, 2)
LATE = NextWorldReady(1, 1, late=True)

Begin = Callable[..., tuple[Cluster, list[Slot]]]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Begins a job on hosts of one slot each; returns it and its slots, whose workers train."""
    monkeypatch.setattr(ahead_module, "POLL_S", 0.01)
    monkeypatch.setattr(ahead_module, "WATCH_S", 0.01)
    begun: list[Cluster] = []

    def begin(*hosts: str, hold_s: float = LONG_S) -> tuple[Cluster, list[Slot]]:
        cluster = Cluster(monkeypatch, hold_s, **dict.fromkeys(hosts, 1))
        begun.append(cluster)
        slots = [cluster.slot(f"{host}:0") for host in hosts]
        assert {size for _, size in cluster.meet(*slots)} == {len(hosts)}
        return cluster, sorted(slots, key=lambda slot: int(slot.info.rank))

    yield begin
    for cluster in begun:
        cluster.close()


def ask(*slots: Slot, attempt: int = 1) -> None:
    """Let all workers of world 1 tell their agents that the hosts have changed, after the same step."""
    for slot in slots:
        slot.ahead.ask(1, attempt)


def coming(cluster: Cluster, host: str) -> Slot:
    """Return the slot of a newcomer whose worker comes up."""
    slot = cluster.slot(f"{host}:0")
    slot.ahead.watch()
    return slot


def wait_news(slot: Slot, last: NextWorldReady) -> list[object]:
    """Return all that the agent is told, up to `last`."""
    heard: list[object] = []
    while last not in heard:
        heard += slot.news()
    return heard


def wait_counted_anew(newcomer: Slot) -> None:
    """Return once the newcomer's agent has asked in its worker's place, and was answered."""
    wait_for(lambda: newcomer.proxy.launched_env_used and newcomer.proxy.due)


def test_a_newcomer_is_started_while_the_others_train_and_all_go_over_when_it_is_there(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(a=1, b=1, c=1)
    ask(a, b)
    c = coming(cluster, "c")
    assert a.hears_nothing()
    met = c.go()
    assert a.news() == [READY]
    assert b.hears_nothing()  # rank 0's worker tells the others
    assert cluster.meet(a, b) == [(0, 3), (1, 3)]
    assert met.result() == (2, 3)


def test_a_change_that_brings_nobody_is_ready_at_once(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(**{a.info.hostname: 1})
    ask(a, b)
    assert a.news() == [READY]
    assert cluster.meet(a, b) == [(0, 1), REMOVED]


def test_the_next_rank_0_leads_when_the_present_one_is_taken_away(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(**{b.info.hostname: 1, "c": 1})
    ask(a, b)
    met = coming(cluster, "c").go()
    assert b.news() == [READY]
    assert a.hears_nothing()
    assert cluster.meet(a, b) == [REMOVED, (0, 2)]
    assert met.result() == (1, 2)


def test_a_newcomer_that_is_taken_away_again_ends_and_the_others_go_on(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(a=1, b=1, c=1)
    ask(a, b)
    c = coming(cluster, "c")
    cluster.change(a=1, b=1)
    ask(a, b, attempt=2)
    assert READY_AT_LAST in wait_news(a, READY_AT_LAST)
    wait_for(lambda: c.proxy.removed)
    assert cluster.meet(a, b) == [(0, 2), (1, 2)]


def test_agents_that_hear_of_a_second_change_at_different_times_ask_for_the_same_round(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(a=1, b=1, c=1)
    a.ahead.ask(1, 1)
    a.ahead.ask(1, 2)  # before the first round is made
    ask(b)
    c = coming(cluster, "c")
    wait_for(lambda: b.proxy.due)
    b.ahead.ask(1, 2)  # after it
    wait_counted_anew(c)
    met = c.go()
    assert READY_AT_LAST in wait_news(a, READY_AT_LAST)
    assert cluster.meet(a, b) == [(0, 3), (1, 3)]
    assert met.result() == (2, 3)


def test_a_slot_that_is_taken_away_is_not_counted_for_the_round_after(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(**{b.info.hostname: 1, "c": 1})
    ask(a, b)
    c = cluster.slot("c:0")  # whose agent does not watch yet
    wait_for(lambda: b.proxy.due)
    cluster.change(**{b.info.hostname: 1})
    ask(a, b, attempt=2)
    wait_for(lambda: b.proxy.asking)
    assert not a.proxy.asking
    c.ahead.watch()
    assert READY_AT_LAST in wait_news(b, READY_AT_LAST)
    wait_for(lambda: c.proxy.removed)
    assert cluster.meet(a, b) == [REMOVED, (0, 1)]


def test_a_newcomer_that_gives_up_is_late_and_its_host_is_left_out(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(a=1, b=1, c=1)
    ask(a, b)
    c = coming(cluster, "c")
    assert c.proxy.retire(goal=False)
    c.end(1)
    assert a.news() == [LATE]
    ask(a, b, attempt=2)
    assert a.news() == [READY_AT_LAST]
    assert cluster.meet(a, b) == [(0, 2), (1, 2)]


def test_a_newcomer_whose_agent_is_killed_is_late_after_a_while(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b", hold_s=0.5)
    cluster.change(a=1, b=1, c=1)
    ask(a, b)
    cluster.slot("c:0").die()
    assert a.news() == [LATE]
    a.ahead._hold_s = b.ahead._hold_s = LONG_S
    ask(a, b, attempt=2)
    assert a.news() == [READY_AT_LAST]
    assert cluster.meet(a, b) == [(0, 2), (1, 2)]


def test_a_newcomer_that_takes_longer_is_let_go_on_and_joins(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b", hold_s=0.5)
    cluster.change(a=1, b=1, c=1)
    ask(a, b)
    c = coming(cluster, "c")
    assert a.news() == [LATE]
    a.ahead._hold_s = b.ahead._hold_s = LONG_S
    ask(a, b, attempt=2)
    wait_counted_anew(c)
    met = c.go()
    assert a.news() == [READY_AT_LAST]
    assert cluster.meet(a, b) == [(0, 3), (1, 3)]
    assert met.result() == (2, 3)


def test_who_loses_the_world_while_a_newcomer_comes_asks_anew_with_all_others(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(a=1, b=1, c=1)
    ask(a, b)
    c = coming(cluster, "c")
    wait_for(lambda: a.proxy.due and b.proxy.due)
    b.proxy.ended()  # its worker is killed
    met = [a.go(), b.go()]
    wait_counted_anew(c)
    met.append(c.go())
    assert [m.result() for m in met] == [(0, 3), (1, 3), (2, 3)]


def test_an_agent_that_is_killed_while_a_newcomer_comes_is_not_waited_for(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(a=1, b=1, c=1)
    ask(a, b)
    c = coming(cluster, "c")
    wait_for(lambda: a.proxy.due and b.proxy.due)
    b.die()
    going = a.go()
    wait_counted_anew(c)
    assert sorted([c.go().result(), going.result()]) == [(0, 2), (1, 2)]


def test_an_agent_that_is_killed_when_all_are_there_is_not_waited_for(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(a=1, b=1, c=1)
    ask(a, b)
    c = coming(cluster, "c")
    met = c.go()
    assert a.news() == [READY]
    b.die()
    going = a.go()
    assert met.result() == NOBODY_MET
    assert sorted([c.go().result(), going.result()]) == [(0, 2), (1, 2)]


def test_who_loses_the_world_before_the_next_is_made_enters_that_one(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(a=1, b=1, c=1)
    ask(a)
    wait_for(lambda: a.proxy.asking)
    b.proxy.ended()  # killed before it could tell its agent
    going = [a.go_and_ask(), b.go()]
    c = coming(cluster, "c")
    going.append(c.go())
    assert [g.result() for g in going] == [(0, 3), (1, 3), (2, 3)]


def test_a_slot_that_drains_while_a_newcomer_comes_is_not_waited_for(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(a=1, b=1, c=1)
    ask(a, b)
    c = coming(cluster, "c")
    wait_for(lambda: b.proxy.due)
    b.ahead.leave()
    assert a.news() == [LATE]
    going = a.go()
    b.proxy.ended()
    assert b.proxy.retire(goal=False)
    b.end(75)
    wait_counted_anew(c)
    assert sorted([c.go().result(), going.result()]) == [(0, 2), (1, 2)]


def test_a_newcomer_that_dies_after_it_showed_up_is_not_gone_over_to(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(a=1, b=1, c=1)
    ask(a, b)
    c = coming(cluster, "c")
    dying = c.go()
    assert a.news() == [READY]
    c.hang_up()
    assert dying.result() == NOBODY_MET  # and its agent has heard of the end
    c.hung_up = False
    assert a.news() == [LATE]
    ask(a, b, attempt=2)
    met = c.go()
    assert a.news() == [READY_AT_LAST]
    assert cluster.meet(a, b) == [(0, 3), (1, 3)]
    assert met.result() == (2, 3)


def test_the_goal_is_not_kept_waiting_by_a_newcomer(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    cluster.change(a=1, b=1, c=1)
    ask(a, b)
    c = coming(cluster, "c")
    wait_for(lambda: a.proxy.due and b.proxy.due)
    a.reach_goal()
    b.reach_goal()
    assert c.news() == [GoalReached()]
    c.reach_goal()
    assert cluster.results() == {"a[0]": 0, "b[0]": 0, "c[0]": 0}


def test_a_newcomer_that_is_ready_when_the_goal_is_reached_need_not_go(begin: Begin) -> None:
    cluster, (a,) = begin("a")
    cluster.change(a=1, c=1)
    ask(a)
    c = cluster.slot("c:0")
    wait_for(lambda: a.proxy.due)
    a.reach_goal()
    assert c.go().result() == OVER
    c.reach_goal()
    assert cluster.results() == {"a[0]": 0, "c[0]": 0}


def test_a_newcomer_that_waits_for_the_others_when_the_goal_is_reached_learns_it(begin: Begin) -> None:
    cluster, (a,) = begin("a")
    cluster.change(a=1, c=1)
    ask(a)
    c = cluster.slot("c:0")
    met = c.go()
    assert a.news() == [READY]
    a.reach_goal()
    assert met.result() == NOBODY_MET
    assert c.proxy.is_over()
    c.reach_goal()
    assert cluster.results() == {"a[0]": 0, "c[0]": 0}


def test_a_goal_counts_although_the_slot_is_counted_for_the_next_round(begin: Begin) -> None:
    cluster, (a,) = begin("a")
    cluster.change(a=1, c=1)
    ask(a)
    c = cluster.slot("c:0")  # whose agent does not watch yet
    wait_for(lambda: a.proxy.due)
    cluster.change(a=1)
    ask(a, attempt=2)
    wait_for(lambda: a.proxy.asking)
    assert not a.proxy.retire(goal=True)
    c.ahead.watch()
    a.reach_goal()
    wait_for(lambda: c.proxy.removed)
    c.end(75)
    assert cluster.results() == {"a[0]": 0}


def test_a_change_is_announced_to_the_agent_while_no_worker_is_there_to_hear(begin: Begin) -> None:
    cluster, (a, b) = begin("a", "b")
    wait_for(lambda: a.proxy.hears and b.proxy.hears)
    a.proxy.ended()  # rank 0's worker is dead, and the next has not come up
    cluster.change(a=1, b=1, c=1)
    assert a.announced() == [HostsAnnounced(removed=False)]
    cluster.change(a=1, c=1)
    assert a.announced()[-1] == HostsAnnounced(removed=True)
    assert b.announcements.news() == []  # the driver tells rank 0 alone


def test_a_worker_does_not_take_the_agents_place_as_the_one_who_hears(begin: Begin) -> None:
    cluster, (a,) = begin("a")
    wait_for(lambda: a.proxy.hears)
    assert a.register("nobody listens there") == 200
    cluster.change(a=1, c=1)
    assert a.announced() == [HostsAnnounced(removed=False)]


def test_what_a_launcher_would_not_ask_is_not_unpickled(begin: Begin) -> None:
    _, (a,) = begin("a")
    assert read_request(pickle.dumps(os.system)) is None
    assert read_request(b"cos\nsystem\n(S'true'\ntR.") is None
    with socket.create_connection(a.announcements._server.getsockname()) as stranger:
        stranger.sendall(b"x" * 32 + struct.pack("i", 4) + b"abcd")
        assert stranger.recv(1) == b""
    assert a.announcements.news() == []
