"""What becomes of frames on a link that is broken in some way."""

import math

import pytest

from elastic.chaos.net.control import Ways, read_request, request
from elastic.chaos.net.way import CLEAR, CUT, Fate, Line, Way, cross, targets

KILOBYTE_A_SECOND = Way(rate=1000.0, backlog_s=1.0)
IDLE = Line()


@pytest.mark.parametrize(
    ("way", "line", "size", "draw", "fate", "at"),
    [
        (CLEAR, IDLE, 1500, 0.0, Fate.PASSED, 10.0),
        (CUT, IDLE, 1500, 0.9, Fate.CUT, 10.0),
        (Way(cut=True, loss=1.0), IDLE, 1, 0.0, Fate.CUT, 10.0),
        (Way(loss=0.05), IDLE, 1500, 0.049, Fate.LOST, 10.0),
        (Way(loss=0.05), IDLE, 1500, 0.05, Fate.PASSED, 10.0),
        (Way(loss=1.0), IDLE, 1500, 0.999, Fate.LOST, 10.0),
        (Way(delay_s=0.2), IDLE, 1500, 0.5, Fate.PASSED, 10.2),
        (Way(delay_s=0.2), Line(10.0, 10.5), 1500, 0.5, Fate.PASSED, 10.5),  # no overtaking after a longer delay
        (CLEAR, Line(10.0, 10.5), 1500, 0.5, Fate.PASSED, 10.5),
        (KILOBYTE_A_SECOND, IDLE, 500, 0.5, Fate.PASSED, 10.5),
        (KILOBYTE_A_SECOND, Line(10.25, 10.25), 500, 0.5, Fate.PASSED, 10.75),  # waits for the one before
        (KILOBYTE_A_SECOND, Line(9.0, 9.0), 500, 0.5, Fate.PASSED, 10.5),  # time in which nothing came is not saved up
        (KILOBYTE_A_SECOND, Line(11.0, 11.0), 500, 0.5, Fate.PASSED, 11.5),
        (KILOBYTE_A_SECOND, Line(11.01, 11.01), 500, 0.5, Fate.CROWDED, 10.0),
        (Way(rate=1000.0, delay_s=0.2), IDLE, 500, 0.5, Fate.PASSED, 10.7),
    ],
)
def test_a_frame_that_comes_at_10_s_has_its_fate(
    way: Way, line: Line, size: int, draw: float, fate: Fate, at: float
) -> None:
    found, arrives, _ = cross(way, line, size, 10.0, draw)
    assert (found, arrives) == (fate, pytest.approx(at))


def test_a_frame_that_does_not_pass_takes_no_room() -> None:
    for way in (CUT, Way(loss=1.0), Way(rate=1.0, backlog_s=0.0)):
        busy = Line(20.0, 20.0)
        assert cross(way, busy, 1500, 10.0, 0.0)[2] == busy


def test_a_rate_is_kept_over_many_frames() -> None:
    line, last = IDLE, 0.0
    for number in range(1000):
        fate, last, line = cross(Way(rate=1e6, backlog_s=10.0), line, 1000, number * 1e-5, 0.5)
        assert fate is Fate.PASSED
    assert last == pytest.approx(1.0)


def test_a_delay_that_is_not_the_rates_does_not_keep_the_next_frame_waiting() -> None:
    way, line = Way(rate=1e6, delay_s=0.2), IDLE
    for number in range(3):
        _, at, line = cross(way, line, 1000, 0.0, 0.5)
        assert at == pytest.approx(0.2 + 0.001 * (number + 1))


A, B, C = b"\x02\0\0\0\0\1", b"\x02\0\0\0\0\2", b"\x02\0\0\0\0\3"
ALL = b"\xff" * 6
PORTS = ("a", "b", "c")


def test_a_frame_goes_where_its_receiver_has_been_heard_and_everywhere_before() -> None:
    seen: dict[bytes, str] = {}
    assert targets(B + A, "a", seen, PORTS) == ("b", "c")
    assert targets(A + B, "b", seen, PORTS) == ("a",)
    assert targets(B + A, "a", seen, PORTS) == ("b",)
    assert targets(ALL + A, "a", seen, PORTS) == ("b", "c")
    assert targets(b"\x33\x33\0\0\0\1" + A, "a", seen, PORTS) == ("b", "c")


def test_a_receiver_behind_the_same_port_is_sent_nothing_and_one_that_moves_is_found() -> None:
    seen = {A: "a", B: "a"}
    assert targets(B + A, "a", seen, PORTS) == ()
    targets(ALL + B, "c", seen, PORTS)
    assert targets(B + A, "a", seen, PORTS) == ("c",)


def test_an_address_of_a_group_is_nobodys_place() -> None:
    seen: dict[bytes, str] = {}
    targets(B + ALL, "a", seen, PORTS)
    assert seen == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"loss": 1.1}, "loss: found 1.1, expected a share"),
        ({"delay_s": -1.0}, "delay_s: found -1.0"),
        ({"rate": math.inf}, "rate: found inf"),
        ({"backlog_s": math.nan}, "backlog_s: found nan"),
    ],
)
def test_a_way_that_no_link_can_be_is_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Way(**wrong)  # type: ignore[arg-type]


def test_a_request_comes_as_it_was_sent() -> None:
    changes = {"h1": Ways(out=CUT), "h2": Ways(Way(loss=0.05), Way(delay_s=0.1, rate=125e3))}
    assert read_request(request(changes), ("h1", "h2")) == changes


@pytest.mark.parametrize(
    "packet", [b"", b"{", b"[]", b'{"h9": {}}', b'{"h1": {"up": {}}}', b'{"h1": {"out": {"speed": 1}}}', b"\xff"]
)
def test_what_is_no_request_is_refused(packet: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each says something else
        read_request(packet, ("h1", "h2"))
