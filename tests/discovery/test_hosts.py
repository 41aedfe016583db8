"""What people and programs write where hosts are expected, and what is made of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.hosts import Host, Hosts, SourceError, parse

# What is written -> the hosts, and a part of the reason for each entry that is left out.
READ: list[tuple[str, str, list[str]]] = [
    # plain
    ("", "", []),
    ("\n\n  \n", "", []),
    ("# nothing but this\n", "", []),
    ("a", "a:1", []),
    ("a:2", "a:2", []),
    ("a:2\nb:3", "a:2 b:3", []),
    ("a:2\r\nb:3\r\n", "a:2 b:3", []),
    ("\ufeffa:2\n", "a:2", []),
    ("  a:2\t\n", "a:2", []),
    ("a:2 # the good one", "a:2", []),
    ("a:2#tight", "a:2", []),
    ("a slots=4", "a:4", []),
    ("a\tslots = 4", "a:4", []),
    ("b:1\na:1", "b:1 a:1", []),
    ("node-1.cluster.local:8", "node-1.cluster.local:8", []),
    ("node.cluster.:8", "node.cluster.:8", []),
    ("NODE:8", "NODE:8", []),
    ("under_score:1", "under_score:1", []),
    ("10.0.0.7:2", "10.0.0.7:2", []),
    ("10.0.0.7", "10.0.0.7:1", []),
    ("[fe80::1]:2", "fe80::1:2", []),
    ("[fe80::1]", "fe80::1:1", []),
    ("[fe80::1%eth0] slots=2", "fe80::1%eth0:2", []),
    ("[::1]:1\n[::2]:1", "::1:1 ::2:1", []),
    ("a:007", "a:7", []),
    ("a:1024", "a:1024", []),
    ("x" * 63 + ":1", "x" * 63 + ":1", []),
    # left out, the rest holds
    ("ok:1\na:", "ok:1", ["expected a whole number"]),
    ("ok:1\na:x", "ok:1", ["expected a whole number"]),
    ("ok:1\na:-1", "ok:1", ["expected a whole number"]),
    ("ok:1\na:1.5", "ok:1", ["expected a whole number"]),
    ("ok:1\na:1e3", "ok:1", ["expected a whole number"]),
    ("ok:1\na:٣", "ok:1", ["expected a whole number"]),
    ("ok:1\na:2:3", "ok:1", ["expected host, host:slots"]),
    ("ok:1\na:99999", "ok:1", ["expected 1 to 1024"]),
    ("ok:1\na:99999999999999999999", "ok:1", ["expected a whole number"]),
    ("ok:1\n:2", "ok:1", ["expected host, host:slots"]),
    ("ok:1\na 2", "ok:1", ["expected host, host:slots"]),
    ("ok:1\na b c", "ok:1", ["expected host, host:slots"]),
    ("ok:1\na : 2", "ok:1", ["expected host, host:slots"]),
    ("ok:1\na:2 slots=3", "ok:1", ["given twice"]),
    ("ok:1\na slots=", "ok:1", ["expected a whole number"]),
    ("ok:1\na slots=2 max_slots=4", "ok:1", ["expected host, host:slots"]),
    ("ok:1\nfe80::1", "ok:1", ["needs brackets"]),
    ("ok:1\nfe80::1 slots=2", "ok:1", ["needs brackets"]),
    ("ok:1\n[fe80::1:2", "ok:1", ["expected host, host:slots"]),
    ("ok:1\n[fe80::zz]:2", "ok:1", ["no IPv6 address"]),
    ("ok:1\n[a]:2", "ok:1", ["brackets are for IPv6"]),
    ("ok:1\n-oProxyCommand=reboot", "ok:1", ["no host name"]),
    ("ok:1\n-l:2", "ok:1", ["no host name"]),
    ("ok:1\nme@a:2", "ok:1", ["no host name"]),
    ("ok:1\na;reboot:2", "ok:1", ["no host name"]),
    ("ok:1\n$(reboot):2", "ok:1", ["no host name"]),
    ("ok:1\nhö:2", "ok:1", ["no host name"]),
    ("ok:1\na..b:2", "ok:1", ["no host name"]),
    ("ok:1\n" + "x" * 64 + ":1", "ok:1", ["no host name"]),
    ("ok:1\n" + "x." * 127 + "x:1", "ok:1", ["no host name"]),
    ("ok:1\n10.0.0.256:1", "ok:1", ["no IPv4 address"]),
    ("ok:1\n4", "ok:1", ["no IPv4 address"]),
    ("ok:1\n\x00\x01\x02", "ok:1", ["no host name"]),
    ("ok:1\nTraceback (most recent call last):", "ok:1", ["expected host, host:slots"]),
    ("ok:1\n<html>502 Bad Gateway</html>", "ok:1", ["expected host, host:slots"]),
    ("ok:1\na:0", "ok:1", ["0 slots"]),
    ("a:0\nb:0", "", ["0 slots", "0 slots"]),
    ("bad:x\nok:1\nbad:y", "ok:1", ["expected a whole number", "expected a whole number"]),
    # JSON
    ("[]", "", []),
    ("{}", "", []),
    ('["a", "b:2"]', "a:1 b:2", []),
    ('[{"host": "a", "slots": 2}, {"name": "b"}]', "a:2 b:1", []),
    ('{"a": 2, "b": 3}', "a:2 b:3", []),
    ('{"hosts": ["a:2"]}', "a:2", []),
    ('{"hosts": {"a": 2}}', "a:2", []),
    ('{"hosts": 4}', "hosts:4", []),
    (' \n["[fe80::1]:2"]', "fe80::1:2", []),
    ('["a", 3]', "a:1", ['expected "host:slots"']),
    ('["a", {"host": "b", "slots": "2"}]', "a:1", ["expected a whole number"]),
    ('["a", {"host": "b", "slots": true}]', "a:1", ["expected a whole number"]),
    ('["a", {"host": "b", "slots": 1.5}]', "a:1", ["expected a whole number"]),
    ('["a", {"host": null, "slots": 1}]', "a:1", ['expected "host:slots"']),
    ('["a", {"slots": 1}]', "a:1", ['expected "host:slots"']),
    ('["a", null, [], {}]', "a:1", ['expected "host:slots"'] * 3),
    ('{"a": -1, "b": 1}', "b:1", ["expected 1 to 1024"]),
]


def shown(found: Hosts) -> str:
    return " ".join(h.line for h in found.hosts)


@pytest.mark.parametrize(("text", "hosts", "reasons"), READ, ids=[repr(t[:30]) for t, _, _ in READ])
def test_what_is_written_is_read_and_what_cannot_be_is_named(text: str, hosts: str, reasons: list[str]) -> None:
    found = parse(text)
    assert shown(found) == hosts
    assert len(found.left_out) == len(reasons)
    for left, reason in zip(found.left_out, reasons, strict=True):
        assert reason in left.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('["a", "b', "not JSON as a whole"),
        ('{"a": 2', "not JSON as a whole"),
        ("[" * 100_000, "not JSON as a whole"),
        ("<html>\n<h1>502 Bad Gateway</h1>\n</html>", "none of 3 entries can be used; the first, line 1"),
        ("bash: kubectl: command not found", "none of 1 entries can be used"),
        ("\x7fELF\x02\x01\x01", "none of"),
        ('[{"hots": "a"}]', "none of 1 entries can be used"),
    ],
    ids=["half a list", "half a mapping", "deep", "html", "an error", "binary", "another key"],
)
def test_what_is_broken_as_a_whole_is_no_answer_at_all(text: str, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        parse(text)


def test_the_table_is_as_long_as_was_promised() -> None:
    assert len(READ) >= 60


def test_a_host_without_slots_gets_the_default() -> None:
    assert parse("a\nb:2\n", default_slots=4).hosts == (Host("a", 4), Host("b", 2))


def test_a_left_out_entry_says_where_it_stands() -> None:
    assert parse("a:1\n\n# x\nb:oops\n").left_out[0].what == "line 4, 'b:oops'"


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_and_what_comes_out_is_fit_for_a_command_line(text: str) -> None:
    try:
        found = parse(text)
    except SourceError:
        return
    for host in found.hosts:
        assert host.slots >= 1
        assert not host.name.startswith("-")
        assert not set(host.name) & set(" \t\n;|&$`'\"<>()\\")


@given(st.lists(st.tuples(st.from_regex(r"[a-z][a-z0-9]{0,10}", fullmatch=True), st.integers(1, 64))))
def test_both_forms_say_the_same(pairs: list[tuple[str, int]]) -> None:
    plain = parse("\n".join(f"{name}:{slots}" for name, slots in pairs))
    listed = parse(json.dumps([{"host": name, "slots": slots} for name, slots in pairs]))
    assert plain == listed == Hosts(tuple(Host(*pair) for pair in pairs))
