"""What an agent has done ahead of its worker, before Horovod's rendezvous and a scripted one alike."""

import select
from collections.abc import Iterator

import pytest

from elastic.agent import ahead as ahead_module
from elastic.agent.ahead import Ahead, GoalReached
from elastic.agent.rendezvous import ABANDONED, OVER
from elastic.channel import NextWorldReady
from tests.contract.launchers import DEADLINE_S, LONG_S, Driver, LauncherServer, ScriptedServer, Slot

READY = NextWorldReady(4, 1)
LATE = NextWorldReady(4, 1, late=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL_S", "WATCH_S", "RETRY_S"):
        monkeypatch.setattr(ahead_module, name, 0.01)


@pytest.fixture
def ahead(slot: Slot) -> Iterator[Ahead]:
    """Orders for a slot whose worker is in its world."""
    slot.show_up()
    slot.proxy.entered()
    ahead = Ahead(slot.proxy, LONG_S)
    yield ahead
    ahead.rest()


def news(ahead: Ahead) -> list[NextWorldReady | GoalReached]:
    """Wait for what the agent is told."""
    assert select.select([ahead.fd], [], [], DEADLINE_S)[0], "nothing was told"
    return ahead.news()


def tells_nothing(ahead: Ahead) -> bool:
    return not select.select([ahead.fd], [], [], 0)[0] and ahead.news() == []


def test_the_next_rank_0_tells_when_everybody_is_there(ahead: Ahead, slot: Slot, driver: Driver) -> None:
    driver.form(rank=0, size=3)
    ahead.ask(4, 1)
    driver.wait_seen("PUT /elastic/stays.0", times=1)
    slot.past("PUT", "/elastic/stays.1", b"1")
    slot.past("PUT", "/global/rank_2", b"address of 2")
    assert news(ahead) == [READY]


@pytest.mark.parametrize("there", ["/elastic/stays.1", "/global/rank_2", "/global/2"])
def test_it_tells_nothing_while_anybody_is_missing(ahead: Ahead, slot: Slot, driver: Driver, there: str) -> None:
    driver.form(rank=0, size=3)
    ahead.ask(4, 1)
    slot.past("PUT", there, b"1")
    driver.wait_seen("GET /elastic/mark", times=5)
    assert tells_nothing(ahead)


def test_all_others_say_that_they_stay_and_tell_nothing(ahead: Ahead, slot: Slot, driver: Driver) -> None:
    driver.form(rank=1, size=2)
    ahead.ask(4, 1)
    driver.wait_seen("PUT /elastic/stays.1", times=1)
    slot.past("PUT", "/elastic/stays.0", b"1")
    assert tells_nothing(ahead)


def test_a_slot_that_is_taken_away_leaves_nothing(ahead: Ahead, slot: Slot, driver: Driver) -> None:
    driver.form(rank=-1)
    ahead.ask(4, 1)
    driver.wait_questions(1)
    ahead.leave()
    assert tells_nothing(ahead)
    assert driver.seen("PUT /elastic/stays.-1") == 0


def test_a_mark_makes_the_next_world_late(ahead: Ahead, slot: Slot, driver: Driver) -> None:
    driver.form(rank=0, size=2)
    ahead.ask(4, 1)
    driver.wait_seen("PUT /elastic/stays.0", times=1)
    slot.past("PUT", "/elastic/mark", ABANDONED)
    assert news(ahead) == [LATE]


def test_a_mark_that_comes_after_everybody_makes_it_late_too(ahead: Ahead, slot: Slot, driver: Driver) -> None:
    driver.form(rank=0, size=1)
    ahead.ask(4, 1)
    assert news(ahead) == [READY]
    slot.past("PUT", "/elastic/mark", ABANDONED)
    assert news(ahead) == [LATE]


def test_a_newcomer_is_waited_for_no_longer_than_it_may_take(slot: Slot, driver: Driver) -> None:
    slot.show_up()
    slot.proxy.entered()
    ahead = Ahead(slot.proxy, hold_s=0.05)
    driver.form(rank=0, size=2)
    ahead.ask(4, 1)
    assert news(ahead) == [LATE]


def test_a_worker_that_goes_over_needs_no_more_news(ahead: Ahead, slot: Slot, driver: Driver) -> None:
    driver.form(rank=0, size=1)
    ahead.ask(4, 1)
    assert news(ahead) == [READY]
    slot.show_up()
    slot.past("PUT", "/elastic/mark", ABANDONED)
    ahead.ask(5, 1)  # is done once the first order is
    driver.wait_questions(2)
    assert tells_nothing(ahead)
    driver.form(rank=1)


def test_a_second_attempt_is_for_the_round_after_the_first(
    ahead: Ahead, slot: Slot, driver: Driver, launcher: LauncherServer
) -> None:
    ahead.ask(4, 1)
    driver.wait_questions(1)
    ahead.ask(4, 2)  # while the first is not answered
    driver.form(rank=0, size=2)
    driver.wait_questions(2)
    assert slot.past("GET", "/elastic/mark").body == ABANDONED
    launcher.empty()
    driver.form(rank=0, size=1)
    assert news(ahead) == [NextWorldReady(4, 2)]


def test_an_order_counts_from_when_it_is_given_until_it_is_answered(ahead: Ahead, slot: Slot, driver: Driver) -> None:
    assert not ahead.asks
    ahead.ask(4, 1)
    assert ahead.asks
    driver.form(rank=0, size=1)
    assert news(ahead) == [READY]
    assert not ahead.asks


def test_a_worker_that_leaves_is_not_waited_for(ahead: Ahead, slot: Slot, driver: Driver) -> None:
    driver.form(rank=1)
    ahead.ask(4, 1)
    ahead.leave()  # whether or not it is answered by then
    driver.wait_seen("PUT /elastic/mark", times=1)
    assert slot.past("GET", "/elastic/mark").body == ABANDONED


def test_a_slot_is_awaited_once_the_next_rank_0_trains_on(ahead: Ahead, slot: Slot) -> None:
    assert not ahead.is_awaited()
    slot.past("PUT", "/elastic/stays.0", b"1")
    assert ahead.is_awaited()


def test_nobody_awaits_a_slot_whose_launcher_is_gone(orphan: Slot) -> None:
    assert not Ahead(orphan.proxy, LONG_S).is_awaited()


def test_a_newcomers_agent_asks_anew_when_its_round_is_abandoned(slot: Slot, driver: Driver) -> None:
    ahead = Ahead(slot.proxy, LONG_S)
    ahead.watch()
    driver.wait_seen("GET /elastic/mark", times=3)
    assert driver.questions == 0
    slot.past("PUT", "/elastic/mark", ABANDONED)
    driver.wait_questions(1)
    assert slot.proxy.launched_env_used
    slot.past("DELETE", "/elastic/mark")
    driver.form(rank=1)
    ahead.rest()


def test_a_newcomers_agent_is_told_when_the_goal_is_reached(slot: Slot, driver: Driver) -> None:
    ahead = Ahead(slot.proxy, LONG_S)
    ahead.watch()
    slot.past("PUT", "/elastic/mark", OVER)
    assert news(ahead) == [GoalReached()]
    assert driver.questions == 0


def test_a_newcomers_agent_watches_no_more_when_its_worker_goes(slot: Slot, driver: Driver) -> None:
    ahead = Ahead(slot.proxy, LONG_S)
    ahead.watch()
    ahead.rest()
    ahead.ask(4, 1)
    driver.wait_questions(1)
    driver.form(rank=1)


def test_a_launcher_that_hangs_up_is_asked_again(scripted: tuple[ScriptedServer, Slot], driver: Driver) -> None:
    server, slot = scripted
    slot.show_up()
    slot.proxy.entered()
    ahead = Ahead(slot.proxy, LONG_S)
    server.hang_ups = 1
    driver.form(rank=0, size=1)
    ahead.ask(4, 1)
    assert news(ahead) == [READY]
