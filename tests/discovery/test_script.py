"""`discover_hosts.sh` as a launcher runs it, with the daemon that it starts."""

import json
import os
import signal
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.discovery.conftest import Asker

HERE = "localhost:2"
MEDIAN_S, MOST_S = 0.050, 0.200


def edit(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    new.replace(path)


def assert_prompt(asker: Asker, *hosts: str) -> None:
    """Ask twenty times, three times over: the machine may be busy with something else, but not each time."""
    rounds = []
    for _ in range(3):
        said = [asker.ask() for _ in range(20)]
        assert {s.hosts for s in said} == {hosts}
        took = [s.took_s for s in said]
        rounds.append((statistics.median(took), max(took)))
        if rounds[-1][0] <= MEDIAN_S and rounds[-1][1] <= MOST_S:
            return
    raise AssertionError(f"median and longest answer of each round: {rounds}")


def decisions(asker: Asker) -> list[tuple[str, str]]:
    lines = asker.place.decisions.read_text().splitlines()
    return [(told["event"], told["what"]) for told in map(json.loads, lines)]


def test_without_a_configuration_it_is_this_machine(asker: Asker) -> None:
    said = asker.ask()
    assert (said.code, said.hosts, said.problem) == (0, (HERE,), "")


def test_the_first_question_starts_the_daemon_and_says_nothing(by_file: Asker, hosts_file: Path) -> None:
    edit(hosts_file, "localhost:3\n")
    said = by_file.ask()
    assert (said.code, said.hosts) == (0, ())
    by_file.wait_hosts("localhost:3")
    assert by_file.ask().problem == ""


def test_editing_the_file_adds_and_removes_slots(by_file: Asker, hosts_file: Path) -> None:
    edit(hosts_file, "localhost:1\n")
    by_file.wait_hosts("localhost:1")
    edit(hosts_file, "localhost:2 # one more\n")
    by_file.wait_hosts("localhost:2")
    edit(hosts_file, "\n# none\nlocalhost slots=1\n")
    by_file.wait_hosts("localhost:1")


def test_a_bad_line_takes_nothing_from_the_others_and_is_named(by_file: Asker, hosts_file: Path) -> None:
    edit(hosts_file, "localhost:1\n")
    by_file.wait_hosts("localhost:1")
    edit(hosts_file, "localhost:2\nnode:many\n-oProxyCommand=x:1\n")
    by_file.wait_hosts("localhost:2")
    assert ("LeftOut", "line 2, 'node:many'") in decisions(by_file)


@pytest.mark.parametrize(
    "broken", ["garbage of all kinds\n!!\n", '{"hosts": ["localh', None], ids=["garbage", "half", "gone"]
)
def test_a_file_that_breaks_leaves_the_last_good_answer(by_file: Asker, hosts_file: Path, broken: str | None) -> None:
    edit(hosts_file, "localhost:2\n")
    by_file.wait_hosts("localhost:2")
    if broken is None:
        hosts_file.unlink()
    else:
        edit(hosts_file, broken)
    by_file.wait(lambda _: ("SourceFailed", f"file {hosts_file}") in decisions(by_file))
    said = by_file.ask()
    assert (said.code, said.hosts) == (0, ("localhost:2",))


def test_a_file_that_comes_late_is_waited_for(by_file: Asker, hosts_file: Path) -> None:
    by_file.ask()
    by_file.daemon()
    said = by_file.wait(lambda said: said.problem != "")
    assert (said.code, said.hosts) == (0, ())
    assert f"file {hosts_file}: {hosts_file} cannot be read: No such file or directory" in said.problem
    edit(hosts_file, "localhost:1\n")
    by_file.wait_hosts("localhost:1")
    assert by_file.ask().problem == ""


def test_it_answers_at_once_while_the_source_hangs(by_file: Asker, hosts_file: Path) -> None:
    edit(hosts_file, "localhost:2\n")
    by_file.wait_hosts("localhost:2")
    hosts_file.unlink()
    os.mkfifo(hosts_file)  # nobody writes to it: to open it takes for ever
    time.sleep(0.5)
    assert_prompt(by_file, "localhost:2")


def test_it_answers_at_once_while_the_daemon_is_frozen(by_file: Asker, hosts_file: Path) -> None:
    edit(hosts_file, "localhost:2\n")
    by_file.wait_hosts("localhost:2")
    os.kill(by_file.daemon(), signal.SIGSTOP)
    by_file.grow_old()
    assert_prompt(by_file, "localhost:2")


def test_a_daemon_that_is_killed_is_started_again_and_the_answer_stays(by_file: Asker, hosts_file: Path) -> None:
    edit(hosts_file, "localhost:2\n")
    by_file.wait_hosts("localhost:2")
    first = by_file.daemon()
    os.kill(first, signal.SIGKILL)
    hosts_file.unlink()  # what it knew is all that is left
    by_file.wait(lambda _: by_file.place.daemon() is None)
    by_file.grow_old()
    assert by_file.ask().hosts == ("localhost:2",)
    second = by_file.daemon()
    assert second != first
    written = by_file.place.answer.stat().st_mtime_ns
    by_file.wait(lambda _: by_file.place.answer.stat().st_mtime_ns > written)
    assert by_file.ask().hosts == ("localhost:2",)
    edit(hosts_file, "localhost:1\n")
    by_file.wait_hosts("localhost:1")


def test_a_frozen_daemon_is_replaced_in_the_end(by_file: Asker, hosts_file: Path) -> None:
    edit(hosts_file, "localhost:2\n")
    by_file.wait_hosts("localhost:2")
    frozen = by_file.daemon()
    os.kill(frozen, signal.SIGSTOP)
    by_file.grow_old(60)
    os.utime(by_file.place.answer, (time.time() - 60, time.time() - 60))
    by_file.ask()
    by_file.wait(lambda _: by_file.place.daemon() not in (None, frozen))


def test_a_daemon_that_nobody_asks_ends(by_file: Asker, hosts_file: Path) -> None:
    edit(hosts_file, "localhost:2\n")
    by_file.wait_hosts("localhost:2")
    by_file.daemon()
    long_ago = time.time() - 60
    os.utime(by_file.place.asked, (long_ago, long_ago))
    ends = time.monotonic() + 5.0
    while by_file.place.daemon() is not None:
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_one_daemon_serves_all_who_ask_at_once(by_file: Asker, hosts_file: Path) -> None:
    edit(hosts_file, "localhost:2\n")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: by_file.ask(), range(4)))
    pid = by_file.daemon()
    by_file.wait_hosts("localhost:2")
    assert by_file.daemon() == pid


def test_a_relative_path_is_taken_from_where_the_launcher_runs(asker: Asker, hosts_file: Path) -> None:
    edit(hosts_file, "localhost:2\n")
    asker.at(ELASTIC_HOSTS_FILE="hosts").wait_hosts("localhost:2")


def test_a_wrong_configuration_ends_the_launcher_at_its_start_and_says_what_to_change(asker: Asker) -> None:
    config = asker.folder / "discovery.yaml"
    config.write_text("sources: [{fil: hosts}]\n")
    asking = asker.at(ELASTIC_DISCOVERY=str(config))
    assert asking.ask().code == 0
    said = asking.wait(lambda said: said.code != 0)
    assert said.code == 1
    assert "sources.0.fil: unknown key; did you mean 'file'?" in said.problem
    config.write_text("sources: [{static: ['localhost:2']}]\n")
    (asking.place.path / "tried").unlink()
    asking.wait_hosts("localhost:2")


def test_a_problem_that_comes_later_does_not_end_the_launcher(asker: Asker) -> None:
    config = asker.folder / "discovery.yaml"
    config.write_text("sources: [{static: ['localhost:2']}]\n")
    asking = asker.at(ELASTIC_DISCOVERY=str(config))
    asking.wait_hosts("localhost:2")
    config.write_text("sources: nonsense\n")
    os.kill(asking.daemon(), signal.SIGKILL)
    asking.wait(lambda _: asking.place.daemon() is None)
    asking.grow_old()
    asking.ask()
    asking.wait(lambda _: asking.place.problem.exists())
    said = asking.ask()
    assert (said.code, said.hosts) == (0, ("localhost:2",))


def test_a_python_without_what_it_needs_is_named(asker: Asker, hosts_file: Path) -> None:
    fake = asker.folder / "python"
    fake.write_text('#!/bin/sh\nexec /usr/bin/env -i python3 -S -I "$@"\n')
    fake.chmod(0o755)
    asking = asker.at(ELASTIC_HOSTS_FILE=str(hosts_file), ELASTIC_PYTHON=str(fake))
    asking.ask()
    said = asking.wait(lambda said: said.code != 0)
    assert "lacks what discovery needs" in said.problem


@pytest.mark.parametrize("path", ["/x/../hosts", "../hosts"])
def test_a_path_with_dots_is_refused(asker: Asker, path: str) -> None:
    said = asker.at(ELASTIC_HOSTS_FILE=path).ask()
    assert (said.code, said.hosts) == (1, ())
    assert "without '..'" in said.problem


def test_a_place_that_is_not_ours_is_not_read(by_file: Asker, hosts_file: Path) -> None:
    edit(hosts_file, "localhost:2\n")
    elsewhere = by_file.folder / "elsewhere"
    elsewhere.mkdir()
    (by_file.folder / "runtime" / "elastic-discovery").symlink_to(elsewhere)
    said = by_file.ask()
    assert (said.code, said.hosts) == (1, ())
    assert "is not yours" in said.problem
    assert not list(elsewhere.iterdir())


def test_a_place_is_for_its_user_alone(by_file: Asker, hosts_file: Path) -> None:
    edit(hosts_file, "localhost:2\n")
    by_file.wait_hosts("localhost:2")
    assert (by_file.folder / "runtime" / "elastic-discovery").stat().st_mode & 0o777 == 0o700
