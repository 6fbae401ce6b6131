"""A server that pretends to know a process's secret: a client with a credential refuses it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramMechanism

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import SaslChallenge, SaslMechanisms, SaslOutcome
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.sasl.layer import SaslClient
from enmasse.identity.processes.credentials import Credential
from enmasse.identity.processes.roles import Role
from enmasse.identity.processes.scram import SCRAM, of_process, verifier

SECRET = "the secret of broker-1"
CREDENTIAL = Credential("broker-1", Role.BROKER, SECRET)


def _offer(*names: str) -> SaslMechanisms:
    return SaslMechanisms(sasl_server_mechanisms=tuple(Symbol(name) for name in names))


def _begun(secret: str) -> tuple[SaslClient, Any]:
    """Return a client that has sent client-final-message, and the server's side of scramp, which knows `secret`."""
    known = verifier(secret)
    server: Any = ScramMechanism(SCRAM).make_server(
        lambda _: (known.salt, known.stored_key, known.server_key, known.iterations)
    )
    client = SaslClient([of_process(CREDENTIAL)])
    server.set_client_first(client.receive(_offer(SCRAM)).initial_response.decode())
    final = client.receive(SaslChallenge(challenge=server.get_server_first().encode())).response.decode()
    if secret == SECRET:
        server.set_client_final(final)
    return client, server


def _refused(client: SaslClient, frame: Any, reason: str) -> None:
    with pytest.raises(AmqpError, match=reason) as caught:
        client.receive(frame)
    assert caught.value.condition == "amqp:unauthorized-access"
    assert not client.done


def test_the_signature_may_come_with_the_outcome() -> None:
    client, server = _begun(SECRET)
    assert client.receive(SaslOutcome(code=0, additional_data=server.get_server_final().encode())) is None
    assert client.done


@pytest.mark.parametrize("offered", [("PLAIN", "ANONYMOUS"), ("EXTERNAL",), ("SCRAM-SHA-1",), ()])
def test_another_mechanism_is_not_used(offered: tuple[str, ...]) -> None:
    _refused(SaslClient([of_process(CREDENTIAL)]), _offer(*offered), "the client has SCRAM-SHA-256")


def test_acceptance_at_once_is_refused() -> None:
    client = SaslClient([of_process(CREDENTIAL)])
    client.receive(_offer(SCRAM))
    _refused(client, SaslOutcome(code=0), "no signature")


@pytest.mark.parametrize("additional", [None, b"", b"v=", b"v=d3Jvbmc=", b"e=other-error", b"\xff"])
def test_acceptance_without_the_signature_is_refused(additional: bytes | None) -> None:
    client, _ = _begun("another secret")
    _refused(client, SaslOutcome(code=0, additional_data=additional), f"the server's part of {SCRAM} is wrong")


def test_the_signature_of_another_exchange_is_refused() -> None:
    _, server = _begun(SECRET)
    client, _ = _begun(SECRET)
    _refused(client, SaslChallenge(challenge=server.get_server_final().encode()), "is wrong")


def test_a_replayed_first_message_of_the_server_is_refused() -> None:
    known = verifier(SECRET)
    server: Any = ScramMechanism(SCRAM).make_server(
        lambda _: (known.salt, known.stored_key, known.server_key, known.iterations)
    )
    earlier = SaslClient([of_process(CREDENTIAL)])
    server.set_client_first(earlier.receive(_offer(SCRAM)).initial_response.decode())
    client = SaslClient([of_process(CREDENTIAL)])
    client.receive(_offer(SCRAM))
    _refused(client, SaslChallenge(challenge=server.get_server_first().encode()), "is wrong")


def test_a_challenge_after_the_signature_is_refused() -> None:
    client, server = _begun(SECRET)
    client.receive(SaslChallenge(challenge=server.get_server_final().encode()))
    _refused(client, SaslChallenge(challenge=b"more"), "a challenge after its signature")


@pytest.mark.parametrize("iterations", ["1", "4095", "10000000", "1" + "0" * 4000])
def test_a_count_of_iterations_that_is_too_small_or_too_large_is_refused(iterations: str) -> None:
    client = SaslClient([of_process(CREDENTIAL)])
    first = client.receive(_offer(SCRAM)).initial_response.decode()
    nonce = first.rpartition("r=")[2]
    challenge = f"r={nonce}server,s=MTIzNDU2Nzg5MDEy,i={iterations}".encode()
    _refused(client, SaslChallenge(challenge=challenge), "is wrong")


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_arbitrary_bytes_of_the_server_are_refused(first: bytes, second: bytes) -> None:
    client = SaslClient([of_process(CREDENTIAL)])
    client.receive(_offer(SCRAM))
    _refused(client, SaslChallenge(challenge=first), "is wrong")
    client, _ = _begun(SECRET)
    _refused(client, SaslOutcome(code=0, additional_data=second), "is wrong")
