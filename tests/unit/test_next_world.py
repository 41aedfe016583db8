"""What a worker knows of the world to come: the launcher's news, and the agent's."""

from typing import Any

from elastic.worker.next_world import HostNews


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
