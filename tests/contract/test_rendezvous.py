"""The agent's proxy before a launcher's rendezvous, Horovod's own and a scripted one alike."""

import socket

import pytest

from tests.contract.launchers import ASK, RANK_0, RANK_1, Client, Driver, Response, ScriptedServer, Slot


def test_a_question_is_answered_when_the_world_is_formed(slot: Slot, driver: Driver) -> None:
    asking = slot.send("GET", ASK)
    driver.wait_questions(1)
    driver.form(rank=1)
    assert asking.response() == RANK_1
    assert not slot.proxy.removed


def test_a_question_whose_asker_died_is_answered_to_its_successor(slot: Slot, driver: Driver) -> None:
    ghost = slot.send("GET", ASK)
    driver.wait_questions(1)
    ghost.die()
    successor = slot.send("GET", ASK)
    driver.form(rank=1)
    assert successor.response() == RANK_1
    assert driver.questions == 1


def test_several_ghosts_are_counted_once(slot: Slot, driver: Driver) -> None:
    for _ in range(5):
        ghost = slot.send("GET", ASK)
        driver.wait_questions(1)
        ghost.die()
    driver.form(rank=0)
    assert slot.call("GET", ASK) == RANK_0
    assert driver.questions == 1


def test_an_answer_is_kept_for_a_successor_until_the_slot_has_shown_up(slot: Slot, driver: Driver) -> None:
    driver.form(rank=1)
    driver.form(rank=0)
    assert [slot.call("GET", ASK) for _ in range(3)] == [RANK_1] * 3
    slot.show_up()
    assert slot.call("GET", ASK) == RANK_0
    assert driver.questions == 2


@pytest.mark.parametrize("scope", ["/local_alpha/0", "/cross_0/0", "/ps_1/0", "/globally/0"])
def test_only_the_slots_own_address_shows_it_up(slot: Slot, driver: Driver, scope: str) -> None:
    driver.form(rank=1)
    slot.call("GET", ASK)
    assert slot.call("PUT", scope, b"x").status == 200
    assert not slot.proxy.launched_env_used
    assert slot.call("GET", ASK) == RANK_1
    assert driver.questions == 1


def test_the_launched_environment_is_used_up_once_the_slot_has_shown_up(slot: Slot) -> None:
    assert not slot.proxy.launched_env_used
    slot.show_up()
    assert slot.proxy.launched_env_used


def test_a_slot_that_is_no_longer_part_of_the_job_is_known(slot: Slot, driver: Driver) -> None:
    driver.form(rank=-1)
    assert slot.call("GET", ASK) == Response(200, b"-1,-1,-1,-1,-1,-1")
    assert slot.proxy.removed


@pytest.mark.parametrize("target", ["/global/1", "/local_alpha/1", "/cross_0/1"])
def test_a_peers_address_is_waited_for_until_it_appears(slot: Slot, driver: Driver, target: str) -> None:
    asking = slot.send("GET", target)
    driver.wait_seen(f"GET {target}", times=3)
    assert slot.past("PUT", target, b"address of 1").status == 200
    assert asking.response() == Response(200, b"address of 1")


def test_a_peers_address_that_is_there_is_told_at_once(slot: Slot, driver: Driver) -> None:
    slot.past("PUT", "/global/1", b"address of 1")
    assert slot.call("GET", "/global/1") == Response(200, b"address of 1")
    driver.wait_seen("GET /global/1", times=1)
    assert driver.seen("GET /global/1") == 1


def test_a_peer_that_does_not_appear_is_given_up(impatient: Slot) -> None:
    assert impatient.call("GET", "/global/1").status == 404


def test_nothing_else_is_waited_for(slot: Slot) -> None:
    assert slot.call("GET", "/other/1").status == 404


def test_somebody_who_waits_for_a_peer_keeps_nobody_else_waiting(slot: Slot, driver: Driver) -> None:
    waiting = slot.send("GET", "/global/1")
    driver.wait_seen("GET /global/1", times=1)
    slot.show_up()
    assert slot.past("GET", "/global/0").body == b"address of 0"
    waiting.die()


def test_what_is_put_and_deleted_passes_through(slot: Slot) -> None:
    body = bytes(range(256)) * 400
    assert slot.call("PUT", "/other/key", body).status == 200
    assert slot.past("GET", "/other/key") == Response(200, body)
    assert slot.call("GET", "/other/key") == Response(200, body)
    assert slot.call("DELETE", "/other/key").status == 200
    assert slot.past("GET", "/other/key").status == 404


@pytest.mark.parametrize("cut", [1, 20, -6, -1])
def test_a_request_in_two_packets_arrives_whole(slot: Slot, cut: int) -> None:
    client = Client(slot.address, "PUT", "/other/key", b"address\r\n\r\nof 1")
    client.sock.sendall(client.request[:cut])
    slot.show_up()  # a whole round trip through the proxy, so that the first packet has been read by then
    client.sock.sendall(client.request[cut:])
    assert client.response().status == 200
    assert slot.past("GET", "/other/key").body == b"address\r\n\r\nof 1"


def test_a_request_that_breaks_off_is_not_passed_on(slot: Slot) -> None:
    client = Client(slot.address, "PUT", "/other/key", b"address of 1")
    client.sock.sendall(client.request[:-3])
    client.sock.shutdown(socket.SHUT_WR)
    assert client.response() == Response(0, b"")
    assert slot.past("GET", "/other/key").status == 404


def test_a_question_to_a_launcher_that_is_gone_is_answered_with_503(orphan: Slot) -> None:
    assert orphan.call("GET", ASK).status == 503
    assert not orphan.proxy.removed


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_other_requests_to_a_launcher_that_is_gone_are_closed(orphan: Slot, method: str) -> None:
    assert orphan.call(method, "/global/0", b"address of 0") == Response(0, b"")
    assert not orphan.proxy.launched_env_used


def test_a_question_that_got_no_answer_is_asked_again_by_the_next(
    scripted: tuple[ScriptedServer, Slot], driver: Driver
) -> None:
    server, slot = scripted
    server.hang_ups = 1
    driver.form(rank=1)
    assert slot.call("GET", ASK).status == 503
    assert slot.call("GET", ASK) == RANK_1


def test_an_address_that_did_not_reach_the_launcher_shows_nobody_up(scripted: tuple[ScriptedServer, Slot]) -> None:
    server, slot = scripted
    server.hang_ups = 1
    assert slot.call("PUT", "/global/0", b"address of 0").status == 0
    assert not slot.proxy.launched_env_used


def test_a_question_with_a_whole_address_is_known_as_one(scripted: tuple[ScriptedServer, Slot], driver: Driver) -> None:
    _, slot = scripted
    driver.form(rank=1)
    assert [slot.call("GET", f"http://127.0.0.1:1{ASK}") for _ in range(2)] == [RANK_1] * 2
    assert driver.questions == 1
