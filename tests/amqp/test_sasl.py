"""The SASL layer, engine against engine: mechanisms, refusals, an authenticator that takes its time."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.performatives import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.sasl.layer import (
    AnonymousClient,
    Exchange,
    ExternalClient,
    PlainClient,
    SaslClient,
    SaslServer,
    anonymous,
    external,
    plain,
)
from tests.amqp.engine_kit import AMQP, SASL, Pair, Recorder, frame, frames, init

USERS = {"guest": "secret", "ünï": "pässwörd"}


def pair(server: SaslServer | None, client: SaslClient | None) -> Pair:
    both = Pair(opened=False, client_fields={"sasl": client}, server_fields={"sasl": server})
    both.c.open()
    both.run()
    return both


@pytest.mark.parametrize("user", USERS)
def test_plain(user: str) -> None:
    both = pair(SaslServer({"PLAIN": plain(USERS)}), SaslClient([PlainClient(user, USERS[user])]))
    assert both.c.state == both.s.state == "open"
    assert both.s.user == user


@pytest.mark.parametrize(
    ("user", "password"), [("guest", "wrong"), ("nobody", "secret"), ("", "secret"), ("guest", "")]
)
def test_plain_refused(user: str, password: str) -> None:
    both = pair(SaslServer({"PLAIN": plain(USERS)}), SaslClient([PlainClient(user, password)]))
    assert both.client.events == [("close", "amqp:unauthorized-access")]
    assert both.server.events == [("close", "amqp:unauthorized-access")]
    assert both.c.finished and both.s.finished and both.s.user is None
    assert both.c.transport_error is not None
    assert both.c.transport_error.description == "authentication by PLAIN failed: wrong credentials"


@pytest.mark.parametrize(
    "response", [b"", b"guest", b"\0guest", b"a\0b\0c\0d", b"\xff\0guest\0secret", b"root\0guest\0secret"]
)
def test_malformed_plain(response: bytes) -> None:
    server = Connection(Recorder(), container_id="s", is_client=False, sasl=SaslServer({"PLAIN": plain(USERS)}))
    server.receive(SASL + init("PLAIN", response))
    outcome = frames(server.take_output())[-1][1]
    assert isinstance(outcome, SaslOutcome) and outcome.code == 1
    assert server.finished


def test_plain_without_initial_response() -> None:
    server = Connection(Recorder(), container_id="s", is_client=False, sasl=SaslServer({"PLAIN": plain(USERS)}))
    server.receive(SASL + init("PLAIN"))
    server.receive(frame(0, SaslResponse(response=b"\0guest\0secret"), frame_type=1) + AMQP)
    answer = server.take_output()
    assert answer.endswith(AMQP)
    assert server.user == "guest"


def test_anonymous_and_none() -> None:
    both = pair(SaslServer({"ANONYMOUS": anonymous}), SaslClient([AnonymousClient()]))
    assert both.s.user == "anonymous" and both.s.state == "open"
    both = pair(None, None)
    assert both.s.user is None and both.s.state == "open"
    both = pair(None, SaslClient([PlainClient("a", "b"), AnonymousClient()]))
    assert both.s.user == "anonymous"


@pytest.mark.parametrize("certificate", ["CN=device", None])
def test_external(certificate: str | None) -> None:
    both = pair(SaslServer({"EXTERNAL": external(lambda: certificate)}), SaslClient([ExternalClient()]))
    assert both.s.user == certificate
    assert both.c.finished == (certificate is None)


def test_server_demands_sasl() -> None:
    both = pair(SaslServer({"PLAIN": plain(USERS)}), None)
    assert both.c.finished and both.s.finished
    assert both.client.events == [("close", "amqp:not-implemented")]


def test_no_common_mechanism() -> None:
    both = pair(
        SaslServer({"PLAIN": plain(USERS), "EXTERNAL": external(lambda: None)}), SaslClient([AnonymousClient()])
    )
    assert both.c.transport_error is not None
    assert both.c.transport_error.description == "the server offers PLAIN, EXTERNAL, the client has ANONYMOUS"


def test_mechanism_that_was_not_offered() -> None:
    server = Connection(Recorder(), container_id="s", is_client=False, sasl=SaslServer({"PLAIN": plain(USERS)}))
    server.receive(SASL + init("ANONYMOUS"))
    kinds = [p for _, p, _ in frames(server.take_output())]
    assert isinstance(kinds[0], SaslMechanisms) and kinds[0].sasl_server_mechanisms == ("PLAIN",)
    assert isinstance(kinds[1], SaslOutcome) and kinds[1].code == 1


def test_authenticator_that_answers_later() -> None:
    """What the client has pipelined behind its init waits, and is not taken for SASL."""
    asked: list[tuple[Exchange, str, str]] = []
    sasl = SaslServer({"PLAIN": plain(lambda *question: asked.append(question))})
    handler = Recorder()
    server = Connection(handler, container_id="s", is_client=False, sasl=sasl)
    client = Connection(Recorder(), container_id="c", is_client=True)
    client.open()
    pipelined = client.take_output()
    server.receive(SASL + init("PLAIN", b"\0u\0p", "vhost"))
    server.receive(pipelined[:11])
    server.receive(pipelined[11:])
    assert handler.events == []
    ((exchange, user, password),) = asked
    assert (user, password, exchange.hostname, exchange.mechanism) == ("u", "p", "vhost", "PLAIN")
    exchange.succeed("somebody else")
    exchange.fail()  # too late
    assert handler.events == [("open",)]
    assert server.user == "somebody else"
    outcome = [p for _, p, _ in frames(server.take_output()) if isinstance(p, SaslOutcome)]
    assert [o.code for o in outcome] == [0]


def test_flood_while_the_authenticator_is_asking() -> None:
    sasl = SaslServer({"PLAIN": plain(lambda *_: None)})
    server = Connection(Recorder(), container_id="s", is_client=False, sasl=sasl)
    server.receive(SASL + init("PLAIN", b"\0u\0p"))
    for _ in range(100):
        server.receive(b"x" * 100)
    assert server.finished and server.unprocessed == 0


def test_late_refusal() -> None:
    asked: list[Exchange] = []
    sasl = SaslServer({"PLAIN": plain(lambda exchange, *_: asked.append(exchange))})
    both = pair(sasl, SaslClient([PlainClient("u", "p")]))
    assert not both.c.finished
    asked[0].fail(4)
    both.run()
    assert both.c.transport_error is not None and "transient" in both.c.transport_error.description


class _Riddle:
    """A mechanism of our own with several rounds: the layer is open for more."""

    name = "RIDDLE"

    def __init__(self) -> None:
        self.rounds = 0

    def start(self, exchange: Exchange, initial: bytes | None) -> None:
        assert initial is None
        exchange.challenge(b"1")

    def respond(self, exchange: Exchange, response: bytes) -> None:
        self.rounds += 1
        assert response == str(self.rounds).encode() * 2
        if self.rounds == 3:
            exchange.succeed("solver")
        else:
            exchange.challenge(str(self.rounds + 1).encode())


class _RiddleClient:
    name = "RIDDLE"

    def start(self) -> bytes | None:
        return None

    def respond(self, challenge: bytes) -> bytes:
        return challenge * 2

    def finish(self, additional: bytes | None) -> None:
        pass


def test_mechanism_of_several_rounds() -> None:
    both = pair(SaslServer({"RIDDLE": _Riddle}), SaslClient([_RiddleClient()]))
    assert both.s.user == "solver" and both.c.state == "open"


class _Endless:
    def start(self, exchange: Exchange, initial: bytes | None) -> None:
        exchange.challenge(b"?")

    def respond(self, exchange: Exchange, response: bytes) -> None:
        exchange.challenge(b"?")


def test_rounds_are_bounded() -> None:
    handler = Recorder()
    server = Connection(handler, container_id="s", is_client=False, sasl=SaslServer({"RIDDLE": _Endless}))
    server.receive(SASL + init("RIDDLE") + frame(0, SaslResponse(response=b"?"), frame_type=1) * 16)
    assert not server.finished
    server.receive(frame(0, SaslResponse(response=b"?"), frame_type=1))
    assert server.finished and handler.events == [("close", "amqp:illegal-state")]


@pytest.mark.parametrize(
    "data",
    [
        frame(0, SaslResponse(response=b"x"), frame_type=1),
        frame(0, SaslOutcome(code=0), frame_type=1),
        init("PLAIN", b"\0" + b"x" * 9000),
        frame(0, SaslInit(mechanism=Symbol("PLAIN")), frame_type=0),
        b"\x00\x00\x00\x02\x02\x01\x00\x00",
        b"\x00\x00\x00\x09\x02\x01\x00\x00\x40",
    ],
)
def test_hostile_sasl(data: bytes) -> None:
    handler = Recorder()
    server = Connection(handler, container_id="s", is_client=False, sasl=SaslServer({"PLAIN": plain(USERS)}))
    server.receive(SASL + data)
    assert server.finished and handler.names() == ["close"]


def test_init_twice() -> None:
    handler = Recorder()
    server = Connection(handler, container_id="s", is_client=False, sasl=SaslServer({"PLAIN": plain(USERS)}))
    server.receive(SASL + init("PLAIN") + init("PLAIN"))
    assert server.finished and handler.events == [("close", "amqp:illegal-state")]


@pytest.mark.parametrize("performative", [SaslOutcome(code=0), SaslInit(mechanism=Symbol("X"))])
def test_client_meets_frames_out_of_turn(performative: Any) -> None:
    handler = Recorder()
    client = Connection(handler, container_id="c", is_client=True, sasl=SaslClient([AnonymousClient()]))
    client.open()
    client.receive(SASL + frame(0, performative, frame_type=1))
    assert client.finished and handler.events == [("close", "amqp:illegal-state")]


def test_rounds_are_bounded_for_the_client_too() -> None:
    handler = Recorder()
    client = Connection(handler, container_id="c", is_client=True, sasl=SaslClient([AnonymousClient()]))
    client.open()
    offer = frame(0, SaslMechanisms(sasl_server_mechanisms=(Symbol("ANONYMOUS"),)), frame_type=1)
    client.receive(SASL + offer + frame(0, SaslChallenge(challenge=b"?"), frame_type=1) * 16)
    assert not client.finished
    client.receive(frame(0, SaslChallenge(challenge=b"?"), frame_type=1))
    assert client.finished and handler.events == [("close", "amqp:illegal-state")]


def test_client_refuses_an_oversized_challenge() -> None:
    handler = Recorder()
    client = Connection(handler, container_id="c", is_client=True, sasl=SaslClient([AnonymousClient()]))
    client.open()
    offer = frame(0, SaslMechanisms(sasl_server_mechanisms=(Symbol("ANONYMOUS"),)), frame_type=1)
    client.receive(SASL + offer + frame(0, SaslChallenge(challenge=b"x" * 9000), frame_type=1)[:8])
    assert client.finished and handler.events == [("close", "amqp:connection:framing-error")]


def test_nul_in_credentials() -> None:
    with pytest.raises(ValueError, match="NUL"):
        PlainClient("a\0b", "c")
