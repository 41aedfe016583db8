"""What a worker knows of the world to come: the launcher's news, and the agent's."""

from typing import Any

import pytest

from elastic.channel import AskAhead, Finished, GoOver, Message, NextWorldReady
from elastic.worker.next_world import HostNews, NextWorld


def test_no_news_is_nothing_to_settle() -> None:
    news = HostNews()
    assert not news.open
    assert not news.removed


def test_news_is_open_until_it_is_settled() -> None:
    news = HostNews()
    news.hear(removed=False)
    assert news.open
    news.settle(1)
    assert not news.open


def test_news_that_came_after_what_is_settled_stays_open() -> None:
    news = HostNews()
    news.hear(removed=False)
    told = news.told
    news.hear(removed=False)
    news.settle(told)
    assert news.open
    news.settle(news.told)
    assert not news.open


def test_a_removal_counts_until_it_is_settled() -> None:
    news = HostNews()
    news.hear(removed=True)
    news.hear(removed=False)
    assert news.removed
    news.settle(2)
    assert not news.removed


def test_a_removal_that_is_settled_makes_no_removal_of_later_news() -> None:
    news = HostNews()
    news.hear(removed=True)
    news.hear(removed=False)
    news.settle(1)
    assert news.open
    assert not news.removed


def test_what_is_settled_stays_so() -> None:
    news = HostNews()
    news.hear(removed=True)
    news.settle(1)
    news.settle(0)
    assert not news.open
    assert not news.removed


class SettledMeanwhile(HostNews):
    """News that the training loop settles while it comes in."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "told" and value:
            self.settle(self.told)
        super().__setattr__(name, value)


def test_a_removal_that_comes_in_while_older_news_is_settled_is_not_lost() -> None:
    news = SettledMeanwhile()
    news.hear(removed=False)
    news.hear(removed=True)
    assert news.open
    assert news.removed


@pytest.fixture
def told() -> list[Message]:
    return []


@pytest.fixture
def world(told: list[Message]) -> NextWorld:
    return NextWorld(told.append)


def test_nothing_is_known_of_a_world_that_nobody_asked_for(world: NextWorld) -> None:
    world.hear(NextWorldReady(0))
    world.hear(NextWorldReady(1))
    assert (world.asked, world.ready, world.late) == (False, False, False)


def test_the_agent_is_told_to_ask(world: NextWorld, told: list[Message]) -> None:
    assert world.ask(4)
    assert world.asked
    assert told == [AskAhead(4, attempt=1)]


def test_without_an_agent_nobody_can_ask() -> None:
    world = NextWorld()
    assert not world.ask(4)
    assert not world.asked


@pytest.mark.parametrize("late", [False, True])
def test_what_the_agent_says_of_it_is_known(world: NextWorld, late: bool) -> None:
    world.ask(4)
    world.hear(NextWorldReady(4, late=late))
    assert (world.ready, world.late) == (not late, late)


def test_what_the_agent_says_last_counts(world: NextWorld) -> None:
    world.ask(4)
    world.hear(NextWorldReady(4))
    world.hear(NextWorldReady(4, late=True))
    assert (world.ready, world.late) == (False, True)


def test_who_asks_again_is_told_apart_from_before(world: NextWorld, told: list[Message]) -> None:
    world.ask(4)
    world.hear(NextWorldReady(4, late=True))
    world.ask(4)
    assert told[-1] == AskAhead(4, attempt=2)
    assert (world.asked, world.ready, world.late) == (True, False, False)
    world.hear(NextWorldReady(4, attempt=1))
    assert not world.ready
    world.hear(NextWorldReady(4, attempt=2))
    assert world.ready


def test_news_of_an_older_world_is_none(world: NextWorld) -> None:
    world.ask(4)
    world.forget()
    world.ask(5)
    world.hear(NextWorldReady(4))
    assert not world.ready


def test_a_change_of_worlds_is_a_new_beginning(world: NextWorld, told: list[Message]) -> None:
    world.ask(4)
    world.hear(NextWorldReady(4))
    world.forget()
    assert (world.asked, world.ready, world.late) == (False, False, False)
    world.ask(5)
    assert told[-1] == AskAhead(5, attempt=1)


def test_the_agent_learns_that_all_go_over(world: NextWorld, told: list[Message]) -> None:
    world.go_over(4)
    assert told == [GoOver(4)]


def test_other_messages_are_no_news_of_it(world: NextWorld) -> None:
    world.ask(4)
    world.hear(Finished())
    assert not world.ready
