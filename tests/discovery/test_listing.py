"""Who is listed, under sources that fail, lie, flap and repeat themselves: tables over one pure function."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.damp import DampRule
from discovery.decisions import Kind
from discovery.gate import GateRule
from discovery.hosts import Hosts, LeftOut
from discovery.listing import News, Rules, decide
from discovery.merge import HERE
from discovery.trust import Failure, TrustRule
from tests.discovery.world import World, hosts

OPEN = GateRule(check="none")
PLAIN = Rules(TrustRule(), DampRule(settle_s=0.0, hold_s=0.0), OPEN)
DAMPED = Rules(TrustRule(), DampRule(settle_s=0.5, hold_s=10.0, forgive_s=600.0), OPEN)
GATED = Rules(TrustRule(), DampRule(settle_s=0.0, hold_s=0.0), GateRule(fails=3, period_s=5.0, retry_s=1.0))
DOWN = Failure("the API server cannot be reached")


# --- what is believed of a source


@pytest.mark.parametrize(
    ("answers", "listed", "kinds"),
    [
        (["a:1 b:1"], "a:1 b:1", []),
        ([""], "", []),
        (["", "a:1"], "a:1", []),
        (["a:1", ""], "a:1", [Kind.EMPTY_DOUBTED]),
        (["a:1", "", ""], "a:1", [Kind.EMPTY_DOUBTED]),
        (["a:1", "", "", ""], "", [Kind.EMPTY_DOUBTED, Kind.EMPTY_BELIEVED]),
        (["a:1", "", "", "a:1", "", ""], "a:1", [Kind.EMPTY_DOUBTED, Kind.EMPTY_DOUBTED]),
        (
            ["a:1", "", DOWN, "", ""],
            "",
            [Kind.EMPTY_DOUBTED, Kind.SOURCE_FAILED, Kind.SOURCE_RECOVERED, Kind.EMPTY_BELIEVED],
        ),
        ([DOWN], "", [Kind.SOURCE_FAILED]),
        ([DOWN, DOWN, DOWN], "", [Kind.SOURCE_FAILED]),
        (["a:1", DOWN], "a:1", [Kind.SOURCE_FAILED]),
        (["a:1", DOWN, Failure("another reason")], "a:1", [Kind.SOURCE_FAILED, Kind.SOURCE_FAILED]),
        (["a:1", DOWN, "a:1 b:1"], "a:1 b:1", [Kind.SOURCE_FAILED, Kind.SOURCE_RECOVERED]),
        (["a:1", "b:1"], "b:1", []),
        (["a:1 b:1", "b:1 a:1"], "a:1 b:1", []),
        (["a:1 b:1", "c:1 b:1 a:1"], "a:1 b:1 c:1", []),
        (["b:1", "a:1 b:1"], "b:1 a:1", []),
        (["a:1", "a:3"], "a:3", []),
        (["a:3", "a:1"], "a:1", []),
        (["a:1 a:1"], "a:1", []),
        (["a:2 b:1 a:5"], "a:2 b:1", []),
    ],
    ids=str,
)
def test_answers_lead_to_a_list(answers: list[str | Failure], listed: str, kinds: list[Kind]) -> None:
    world = World(PLAIN)
    for answer in answers:
        world.hear(answer)
        world.now += 1.0
    assert " ".join(world.listed) == listed
    about_source = [d.kind for d in world.decisions if d.what == "source"]
    assert about_source == kinds


@pytest.mark.parametrize(("when_stale", "listed"), [("keep", ("a:1",)), ("drop", ())])
def test_a_good_answer_that_is_too_old_raises_an_alarm_once(when_stale: str, listed: tuple[str, ...]) -> None:
    world = World(Rules(TrustRule(stale_s=60.0, when_stale=when_stale), PLAIN.damp, OPEN))  # type: ignore[arg-type]
    world.hear("a:1")
    world.hear(DOWN)
    assert world.after(60.0) == ("a:1",)
    assert world.after(0.1) == listed
    world.after(60.0)
    alarm = world.told(Kind.ANSWER_STALE)
    assert [d.what for d in alarm] == ["source"]
    assert DOWN.reason in alarm[0].reason
    assert world.hear("a:1") == ("a:1",)


def test_one_source_that_fails_takes_nothing_from_the_others() -> None:
    world = World(PLAIN, "first", "second")
    world.hear("a:1", "first")
    world.hear("b:1", "second")
    world.hear(DOWN, "first")
    assert world.hear("b:1 c:1", "second") == ("a:1", "b:1", "c:1")


def test_the_list_is_not_ready_before_every_source_has_spoken() -> None:
    world = World(PLAIN, "first", "second")
    world.hear("a:1", "first")
    assert world.outcome is not None
    assert not world.outcome.ready
    world.hear(DOWN, "second")
    assert world.outcome.ready


def test_what_a_source_leaves_out_is_told_once_with_its_reason() -> None:
    world = World(PLAIN)
    answer = Hosts(hosts("a:1").hosts, (LeftOut("pod b", "it is not ready"),))
    world.hear(answer)
    world.hear(answer)
    assert [(d.what, d.reason) for d in world.told(Kind.LEFT_OUT)] == [("pod b", "it is not ready")]
    world.hear(Hosts(answer.hosts, (LeftOut("pod b", "it is terminating"),)))
    assert len(world.told(Kind.LEFT_OUT)) == 2


# --- one host under several names


@pytest.mark.parametrize(
    ("answer", "addresses", "listed"),
    [
        ("node1:2 node1.cluster:2", {"node1": "10.0.0.1", "node1.cluster": "10.0.0.1"}, "node1:2"),
        ("10.0.0.1:2 node1:2", {"node1": "10.0.0.1", "10.0.0.1": "10.0.0.1"}, "node1:2"),
        ("NODE1:2 alias:2", {"alias": "10.0.0.1", "NODE1": "10.0.0.1"}, "node1:2"),
        ("node1.:2", {"node1.": "10.0.0.1"}, "node1:2"),
        ("node1:2 node2:2", {"node1": "10.0.0.1", "node2": "10.0.0.2"}, "node1:2 node2:2"),
        ("node1:2 alias:4", {"node1": "10.0.0.1", "alias": "10.0.0.1"}, "node1:2"),
        ("node1:2 node2:2", {"node1": "", "node2": ""}, "node1:2 node2:2"),
        ("localhost:2 me:2", {"localhost": HERE, "me": HERE}, "localhost:2"),
        ("fd00::1:2 node1:2", {"node1": "fd00::1", "fd00::1": "fd00::1"}, "node1:2"),
        ("a:1 fd00::1:2", {"a": "10.0.0.1", "fd00::1": "fd00::1"}, "a:1"),
    ],
    ids=str,
)
def test_a_host_is_one_however_it_is_called(answer: str, addresses: dict[str, str], listed: str) -> None:
    world = World(PLAIN)
    world.addresses = {name: frozenset({a} if a else ()) for name, a in addresses.items()}
    assert " ".join(world.hear(answer)) == listed
    others = len(answer.split()) - len(listed.split())
    assert len(world.told(Kind.LEFT_OUT)) == others


def test_a_listed_host_keeps_its_name_when_another_one_is_given_first() -> None:
    world = World(PLAIN)
    world.addresses = {"node1": frozenset({"10.0.0.1"}), "alias": frozenset({"10.0.0.1"})}
    world.hear("alias:2")
    assert world.hear("node1:2 alias:2") == ("alias:2",)
    assert len(world.listings) == 1


def test_names_as_given_stay_apart() -> None:
    world = World(Rules(PLAIN.trust, PLAIN.damp, OPEN, canonical=False))
    world.addresses = dict.fromkeys(("localhost", "127.0.0.1", "LOCALHOST"), frozenset({HERE}))
    assert world.hear("localhost:1 127.0.0.1:1 LOCALHOST:1") == ("localhost:1", "127.0.0.1:1", "LOCALHOST:1")


def test_a_name_waits_for_its_address_and_the_others_do_not_wait_for_it() -> None:
    world = World(PLAIN)
    world.hear("a:1")
    done = decide(world.state, News({"source": hosts("a:1", "slow:1")}, {}, world.addresses), world.now, PLAIN)
    assert [h.line for h in done.state.listed] == ["a:1"]
    assert done.unresolved == ("slow",)
    assert done.state.out["slow"] == "its address is being looked up"


# --- changes come late, together, and not again and again


def test_the_first_hosts_are_listed_at_once() -> None:
    assert World(DAMPED).hear("a:1 b:1") == ("a:1", "b:1")


def test_joins_within_the_settling_time_are_announced_together() -> None:
    world = World(DAMPED)
    world.hear("a:1")
    world.hear("a:1 b:1")
    world.now += 0.3
    world.hear("a:1 b:1 c:1")
    assert world.listed == ("a:1",)
    assert world.after(0.25) == ("a:1", "b:1", "c:1")
    assert len(world.listings) == 2


def test_a_stream_of_joins_is_not_put_off_for_ever() -> None:
    world = World(DAMPED)
    world.hear("a:1")
    names = "a:1"
    for n in range(10):
        names += f" n{n}:1"
        world.hear(names)
        world.now += 0.2
    assert len(world.listed) >= 7


def test_a_host_that_goes_goes_at_once_and_takes_those_along_that_wait() -> None:
    world = World(DAMPED)
    world.hear("a:1 b:1")
    world.hear("a:1 b:1 c:1")
    assert world.hear("a:1 c:1") == ("a:1", "c:1")
    assert len(world.listings) == 2


def test_a_joiner_that_is_gone_before_it_was_announced_was_never_there() -> None:
    world = World(DAMPED)
    world.hear("a:1")
    world.hear("a:1 b:1")
    world.now += 0.2
    world.hear("a:1")
    world.after(5.0)
    assert world.listings == [("a:1",)]


def test_a_host_is_let_back_at_once_after_its_first_going_then_ever_later() -> None:
    world = World(DAMPED)
    world.hear("a:1 b:1")
    waits = []
    for _ in range(4):
        world.hear("a:1")
        world.now += 1.0
        world.hear("a:1 b:1")
        came = world.now
        while "b:1" not in world.listed:
            world.after(0.25)
        waits.append(world.now - came)
    assert waits == [0.5, 10.5, 20.5, 40.5]


def test_a_host_that_stayed_long_enough_has_never_gone() -> None:
    world = World(DAMPED)
    world.hear("a:1 b:1")
    for _ in range(3):
        world.hear("a:1")
        world.now += 601.0
        world.hear("a:1 b:1")
        world.after(0.5)
        world.now += 601.0
        assert world.hear("a:1 b:1") == ("a:1", "b:1")
    assert world.hear("a:1") == ("a:1",)
    world.now += 1.0
    world.hear("a:1 b:1")
    assert world.after(0.5) == ("a:1", "b:1")


def test_slots_that_flap_are_damped_as_hosts_are() -> None:
    world = World(DAMPED)
    world.hear("a:2")
    for _ in range(10):
        world.now += 1.0
        world.hear("a:1")
        world.now += 1.0
        world.hear("a:2")
        world.after(0.5)
    assert world.listings == [("a:2",), ("a:1",), ("a:2",), ("a:1",)]
    assert [d.kind for d in world.decisions].count(Kind.SLOTS_CHANGED) == 3


def test_fewer_and_fewer_slots_are_one_going() -> None:
    world = World(DAMPED)
    for slots in ("a:4", "a:3", "a:2", "a:1", "a:4"):
        world.now += 5.0
        world.hear(slots)
    assert world.after(0.5) == ("a:4",)


def test_a_held_host_says_why_it_is_out() -> None:
    world = World(DAMPED)
    for _ in range(3):
        world.hear("a:1 b:1")
        world.after(0.5)
        world.hear("a:1")
    world.hear("a:1 b:1")
    assert world.why_out("b") == "it has gone 2 times and must stay for 10 s before it is listed again"


# --- who may be listed


def test_a_host_is_listed_only_after_it_has_passed() -> None:
    world = World(GATED)
    assert world.hear("a:1") == ()
    assert world.outcome is not None
    assert world.outcome.due == ("a",)
    assert world.why_out("a") == "it has not been looked at yet"
    assert world.look(a="no connection to its port 22") == ()
    assert world.why_out("a") == "no connection to its port 22"
    world.now += 1.0
    assert world.look(a="") == ("a:1",)


def test_a_listed_host_is_dropped_when_enough_looks_fail_in_a_row() -> None:
    world = World(GATED)
    world.hear("a:1 b:1")
    world.look(a="", b="")
    for wrong in ("timed out", "timed out", "", "timed out", "timed out"):
        world.now += 1.0
        assert world.look(b=wrong) == ("a:1", "b:1")
    world.now += 1.0
    assert world.look(b="timed out") == ("a:1",)
    assert world.told(Kind.HOST_DROPPED)[0].reason == "3 health checks failed in a row; the last: timed out"


def test_a_listed_host_that_is_looked_up_anew_need_not_show_itself_anew() -> None:
    world = World(GATED)
    world.hear("a:1")
    world.look(a="")
    known, world.addresses = world.addresses, {}  # another daemon goes on from what this one has left
    assert world.after(1.0) == ("a:1",)
    world.addresses = known
    assert world.after(1.0) == ("a:1",)
    assert not world.told(Kind.HOST_DROPPED)


def test_looks_come_in_their_turn() -> None:
    world = World(GATED)
    world.hear("a:1")
    assert world.outcome is not None
    world.look(a="")
    assert world.outcome.due == ()
    assert world.outcome.wake_at == pytest.approx(world.now + 5.0)
    world.after(5.0)
    assert world.outcome.due == ("a",)
    world.look(a="timed out")
    assert world.outcome.wake_at == pytest.approx(world.now + 1.0)


def test_this_machine_needs_no_looking_at() -> None:
    world = World(GATED)
    world.addresses["localhost"] = frozenset({HERE})
    assert world.hear("localhost:2") == ("localhost:2",)


def test_a_host_with_notice_leaves_at_once_and_may_come_back() -> None:
    world = World(PLAIN)
    world.hear("a:1 b:1")
    world.notices = {"b": "it has notice: EC2 will terminate this spot instance"}
    assert world.after(0.0) == ("a:1",)
    assert world.told(Kind.HOST_DROPPED)[0].reason == "it has notice: EC2 will terminate this spot instance"
    world.notices = {}
    assert world.after(1.0) == ("a:1", "b:1")


# --- whatever happens

ANSWERS = st.one_of(
    st.lists(st.sampled_from("abcdef"), max_size=6, unique=True).map(lambda names: " ".join(f"{n}:1" for n in names)),
    st.just(DOWN),
)


@given(st.lists(st.tuples(ANSWERS, st.floats(0.01, 30.0)), max_size=40))
def test_the_order_of_those_who_stay_never_changes_and_each_change_is_explained(
    script: list[tuple[str | Failure, float]],
) -> None:
    world = World(DAMPED)
    for answer, seconds in script:
        for step in (lambda answer=answer: world.hear(answer), lambda seconds=seconds: world.after(seconds)):
            before, count = names(world), len(world.decisions)
            step()
            after = names(world)
            assert [n for n in before if n in after] == [n for n in after if n in before]
            changed = {d.what for d in world.decisions[count:] if d.kind in (Kind.HOST_LISTED, Kind.HOST_DROPPED)}
            assert set(before) ^ set(after) == changed


def names(world: World) -> list[str]:
    return [line.rpartition(":")[0] for line in world.listed]


@given(st.lists(st.tuples(ANSWERS, st.floats(0.01, 30.0)), max_size=30))
def test_a_source_that_comes_to_rest_is_followed_in_the_end(script: list[tuple[str | Failure, float]]) -> None:
    world = World(DAMPED)
    for answer, seconds in script:
        world.hear(answer)
        world.after(seconds)
    for _ in range(3):
        world.hear("a:1 d:2")
    world.after(600.0)
    world.after(1.0)
    assert set(world.listed) == {"a:1", "d:2"}
