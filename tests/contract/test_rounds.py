"""Asking ahead of the worker, and rounds that lack a member, before Horovod's rendezvous and a scripted one alike."""

import threading

import pytest

from elastic.agent.rendezvous import ABANDONED, OVER
from tests.contract.launchers import ASK, RANK_0, RANK_1, Driver, LauncherServer, ScriptedServer, Slot


def test_who_asks_ahead_learns_the_slots_place(slot: Slot, driver: Driver) -> None:
    driver.form(rank=1, size=3)
    assert slot.proxy.ask() == (1, 3)
    assert slot.proxy.due
    assert not slot.proxy.removed


def test_who_asks_ahead_for_a_slot_that_is_taken_away_learns_that(slot: Slot, driver: Driver) -> None:
    driver.form(rank=-1)
    assert slot.proxy.ask() == (-1, -1)
    assert slot.proxy.removed
    assert not slot.proxy.due


def test_a_slot_is_counted_until_the_round_is_made(slot: Slot, driver: Driver) -> None:
    asking = threading.Thread(target=slot.proxy.ask)
    asking.start()
    driver.wait_questions(1)
    assert slot.proxy.asking
    driver.form(rank=1)
    asking.join()
    assert not slot.proxy.asking


def test_nobody_is_told_a_place_when_the_launcher_is_gone(orphan: Slot) -> None:
    assert orphan.proxy.ask() is None
    assert not orphan.proxy.removed
    assert not orphan.proxy.asking


def test_what_an_agent_leaves_in_the_store_is_there_for_all(slot: Slot) -> None:
    slot.proxy.put("/elastic/key", b"value")
    assert slot.proxy.get("/elastic/key") == slot.past("GET", "/elastic/key").body == b"value"
    assert slot.proxy.get("/elastic/other") is None


def test_a_store_that_is_gone_is_an_error(orphan: Slot) -> None:
    with pytest.raises(OSError):  # noqa: PT011 - whatever the network says
        orphan.proxy.get("/elastic/key")


def test_a_worker_that_goes_over_gets_the_answer_that_was_asked_for_ahead(slot: Slot, driver: Driver) -> None:
    slot.show_up()
    slot.proxy.entered()
    driver.form(rank=1)
    slot.proxy.ask()
    slot.proxy.open_round()
    slot.proxy.entering()
    assert slot.call("GET", ASK) == RANK_1
    assert driver.questions == 1


def test_a_worker_is_answered_when_its_agent_has_heard_what_it_said_before(slot: Slot, driver: Driver) -> None:
    slot.show_up()
    slot.proxy.entered()
    driver.form(rank=1)
    slot.proxy.ask()
    asking = slot.send("GET", ASK)
    slot.call("GET", "/other/key")
    slot.proxy.open_round()
    slot.proxy.entering()
    assert asking.response() == RANK_1
    assert driver.questions == 1


def test_a_worker_enters_when_any_other_knows_that_all_have_agreed(slot: Slot, driver: Driver) -> None:
    slot.show_up()
    slot.proxy.entered()
    driver.form(rank=1)
    slot.proxy.ask()
    slot.past("PUT", "/elastic/open", b"1")
    slot.proxy.entering()
    assert slot.call("GET", ASK) == RANK_1


def test_a_worker_that_lost_its_world_too_early_asks_anew(slot: Slot, driver: Driver) -> None:
    slot.show_up()
    slot.proxy.entered()
    driver.form(rank=1)
    driver.form(rank=0)
    slot.proxy.ask()
    slot.proxy.entering()
    assert slot.call("GET", ASK) == RANK_0
    assert slot.past("GET", "/elastic/mark").body == ABANDONED  # so that all others do so too
    assert driver.questions == 2


def test_a_worker_that_lost_its_world_before_the_round_was_made_enters_it(slot: Slot, driver: Driver) -> None:
    slot.show_up()
    slot.proxy.entered()
    ahead = threading.Thread(target=slot.proxy.ask)
    ahead.start()
    driver.wait_questions(1)
    asking = slot.send("GET", ASK)
    slot.call("GET", "/other/key")
    driver.form(rank=1)
    assert asking.response() == RANK_1
    ahead.join()
    assert slot.past("GET", "/elastic/open").status == 200  # so that all others enter it too
    assert driver.questions == 1


def test_a_worker_whose_slot_is_taken_away_learns_that_in_any_case(slot: Slot, driver: Driver) -> None:
    driver.form(rank=-1)
    slot.proxy.ask()
    slot.proxy.put("/elastic/mark", ABANDONED)
    assert slot.call("GET", ASK).body.startswith(b"-1")
    assert driver.questions == 1


def test_a_slot_that_is_taken_away_asks_no_more(slot: Slot, driver: Driver) -> None:
    driver.form(rank=-1)
    slot.proxy.ask()
    slot.proxy.abandon()
    assert slot.proxy.ask() == (-1, -1)
    assert slot.past("GET", "/elastic/mark").status == 404
    assert driver.questions == 1


def test_an_abandoned_round_is_marked_and_asked_for_anew(slot: Slot, driver: Driver, launcher: LauncherServer) -> None:
    driver.form(rank=1)
    driver.form(rank=0)
    slot.proxy.ask()
    slot.proxy.abandon()
    assert slot.proxy.mark() == ABANDONED
    assert not slot.proxy.due
    launcher.empty()
    assert slot.proxy.ask() == (0, 2)
    assert slot.proxy.mark() is None


def test_the_mark_is_left_before_the_slot_asks_for_the_next_round(
    scripted: tuple[ScriptedServer, Slot], driver: Driver
) -> None:
    server, slot = scripted
    driver.form(rank=1)
    driver.form(rank=0)
    slot.proxy.ask()
    server.puts.clear()
    abandoning = threading.Thread(target=slot.proxy.abandon)
    abandoning.start()
    asking = slot.send("GET", ASK)
    slot.call("GET", "/other/key")
    assert driver.questions == 1
    server.puts.set()
    assert asking.response() == RANK_0
    abandoning.join()


def test_a_question_that_waits_is_for_a_round_to_come_and_is_not_abandoned(slot: Slot, driver: Driver) -> None:
    slot.show_up()
    slot.proxy.entered()
    asking = threading.Thread(target=slot.proxy.ask)
    asking.start()
    driver.wait_questions(1)
    slot.proxy.abandon()
    driver.form(rank=1)
    asking.join()
    assert slot.past("GET", "/elastic/mark").status == 404
    assert driver.questions == 1


def test_a_slot_in_its_world_has_no_round_to_abandon(slot: Slot) -> None:
    slot.show_up()
    slot.proxy.entered()
    slot.proxy.abandon()
    assert slot.past("GET", "/elastic/mark").status == 404


@pytest.mark.parametrize("mark", [ABANDONED, OVER])
def test_a_worker_that_finds_a_mark_asks_anew(slot: Slot, driver: Driver, mark: bytes) -> None:
    driver.form(rank=1)
    driver.form(rank=0)
    slot.call("GET", ASK)
    slot.past("PUT", "/elastic/mark", mark)
    assert slot.call("GET", ASK) == RANK_0


@pytest.mark.parametrize("target", ["/global/1", "/local_alpha/1", "/cross_0/1"])
def test_nobody_is_waited_for_in_a_marked_round(slot: Slot, target: str) -> None:
    waiting = slot.send("GET", target)
    slot.past("PUT", "/elastic/mark", ABANDONED)
    assert waiting.response().status == 404


def test_a_worker_waits_for_no_peer_of_a_round_that_another_has_followed(slot: Slot, driver: Driver) -> None:
    slot.show_up()
    waiting = slot.send("GET", "/global/1")
    driver.wait_seen("GET /global/1", times=2)
    driver.form(rank=1)
    slot.proxy.ask()
    assert waiting.response().status == 404


def test_a_slot_that_ends_before_its_worker_showed_up_marks_the_round(slot: Slot) -> None:
    assert slot.proxy.retire(goal=False)
    assert slot.past("GET", "/elastic/mark").body == ABANDONED


def test_a_slot_that_ends_with_the_goal_says_so_to_newcomers(slot: Slot, driver: Driver) -> None:
    driver.form(rank=0)
    slot.proxy.ask()
    assert slot.proxy.retire(goal=True)
    assert slot.past("GET", "/elastic/mark").body == OVER


def test_a_slot_that_ends_with_the_goal_and_was_asked_for_nothing_leaves_no_mark(slot: Slot) -> None:
    slot.show_up()
    slot.proxy.entered()
    assert slot.proxy.retire(goal=True)
    assert slot.past("GET", "/elastic/mark").status == 404


def test_a_goal_waits_for_the_answer_to_an_open_question(slot: Slot, driver: Driver) -> None:
    asking = threading.Thread(target=slot.proxy.ask)
    asking.start()
    driver.wait_questions(1)
    assert not slot.proxy.retire(goal=True)
    driver.form(rank=1)
    asking.join()
    assert slot.proxy.retire(goal=True)


def test_a_failure_waits_for_no_answer(slot: Slot, driver: Driver) -> None:
    asking = threading.Thread(target=slot.proxy.ask)
    asking.start()
    driver.wait_questions(1)
    assert slot.proxy.retire(goal=False)
    driver.form(rank=1)
    asking.join()


def test_nothing_is_asked_for_a_slot_that_has_ended(slot: Slot, driver: Driver) -> None:
    slot.proxy.retire(goal=True)
    assert slot.proxy.ask() is None
    assert driver.questions == 0


def test_that_the_goal_is_reached_is_not_forgotten_over_a_round_that_fails(slot: Slot) -> None:
    slot.past("PUT", "/elastic/mark", OVER)
    slot.proxy.retire(goal=False)
    assert slot.past("GET", "/elastic/mark").body == OVER


def test_a_worker_that_dies_between_showing_up_and_its_world_leaves_a_mark(slot: Slot) -> None:
    slot.show_up()
    slot.proxy.ended()
    assert slot.past("GET", "/elastic/mark").body == ABANDONED


@pytest.mark.parametrize("in_world", [True, False])
def test_a_worker_that_dies_before_or_after_that_leaves_none(slot: Slot, in_world: bool) -> None:
    if in_world:
        slot.show_up()
        slot.proxy.entered()
    slot.proxy.ended()
    assert slot.past("GET", "/elastic/mark").status == 404


def test_the_first_worker_enters_as_it_was_launched_and_the_next_asks(slot: Slot) -> None:
    assert slot.proxy.enter() == "launched"
    assert slot.proxy.enter() == "launched"
    slot.show_up()
    assert slot.proxy.enter() == "rejoin"


def test_a_first_worker_asks_when_the_round_it_was_launched_for_is_no_more(slot: Slot) -> None:
    slot.past("PUT", "/elastic/mark", ABANDONED)
    assert slot.proxy.enter() == "rejoin"
    assert slot.proxy.launched_env_used


def test_a_first_worker_need_not_enter_when_the_goal_is_reached(slot: Slot) -> None:
    slot.past("PUT", "/elastic/mark", OVER)
    assert slot.proxy.enter() == "over"
    assert slot.proxy.is_over()


def test_a_first_worker_enters_as_it_was_launched_when_the_launcher_is_gone(orphan: Slot) -> None:
    assert orphan.proxy.enter() == "launched"


def test_a_slot_is_asked_for_anew_in_place_of_a_worker_that_comes_up(slot: Slot, driver: Driver) -> None:
    driver.form(rank=1)
    assert slot.proxy.ask_anew() == (1, 2)
    assert slot.proxy.enter() == "rejoin"
    assert slot.call("GET", ASK) == RANK_1
    assert driver.questions == 1


def test_a_slot_is_not_asked_for_anew_when_its_worker_has_been_told_to_go(slot: Slot, driver: Driver) -> None:
    assert slot.proxy.enter() == "launched"
    assert slot.proxy.ask_anew() is None
    assert driver.questions == 0
    slot.proxy.ended()
    driver.form(rank=1)
    assert slot.proxy.ask_anew() == (1, 2)
