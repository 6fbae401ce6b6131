"""SCRAM-SHA-256 of both sides, through SaslServer and SaslClient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import SaslInit, SaslResponse
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.sasl.layer import SaslClient, SaslServer
from enmasse.identity.processes.credentials import Credential, PeerEntry, Peers, peers_text
from enmasse.identity.processes.roles import Peer, Role
from enmasse.identity.processes.scram import SCRAM, UnknownUsers, of_process, scram, verifier
from enmasse.model.users import Verifier


def _peers(folder: Path, **secrets: str) -> Peers:
    path = folder / "peers.json"
    path.write_text(peers_text({name: PeerEntry(Role.BROKER, verifier(secret)) for name, secret in secrets.items()}))
    return Peers(path)


def _exchange(peers: Peers, name: str, secret: str) -> tuple[str | None, bool]:
    """Return user and success of a whole exchange. Raises AmqpError as the client does."""

    def known(user: str) -> Verifier | None:
        entry = peers.find(user)
        return None if entry is None else entry.verifier

    server = SaslServer({SCRAM: scram(known)})
    client = SaslClient([of_process(Credential(name, Role.BROKER, secret))])
    frames: list[Any] = []
    ended: list[tuple[str | None, bool]] = []
    server.start(frames.append, lambda user, ok: ended.append((user, ok)))
    while frames:
        answer = client.receive(frames.pop(0))
        if answer is not None:
            server.receive(answer)
    assert client.done
    return ended[0]


def test_a_process_with_its_secret_is_accepted_under_its_name(tmp_path: Path) -> None:
    peers = _peers(tmp_path, **{"broker-1": "s1", "broker-2": "s2"})
    assert _exchange(peers, "broker-2", "s2") == ("broker-2", True)
    assert peers.peer("broker-2") == Peer("broker-2", Role.BROKER)


@pytest.mark.parametrize(("name", "secret"), [("broker-1", "s2"), ("broker-3", "s1"), ("broker-1", "S1")])
def test_another_secret_or_name_is_refused_alike(tmp_path: Path, name: str, secret: str) -> None:
    with pytest.raises(AmqpError, match="authentication by SCRAM-SHA-256 failed: wrong credentials"):
        _exchange(_peers(tmp_path, **{"broker-1": "s1", "broker-2": "s2"}), name, secret)


def test_a_replaced_file_is_read_again_and_a_damaged_one_changes_nothing(tmp_path: Path) -> None:
    peers = _peers(tmp_path, one="s1")
    assert _exchange(peers, "one", "s1") == ("one", True)
    _peers(tmp_path, two="s2")
    assert _exchange(peers, "two", "s2") == ("two", True)
    (tmp_path / "peers.json").write_text("{")
    assert _exchange(peers, "two", "s2") == ("two", True)
    assert peers.peer("one") is None


def test_without_a_file_no_process_is_known(tmp_path: Path) -> None:
    assert Peers(tmp_path / "none.json").peer("one") is None


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_users_log_in_by_each_mechanism(mechanism: str) -> None:
    from scramp import ScramClient

    known = {"alice": verifier("right", 4096, mechanism)}
    for user, password, expected in (("alice", "right", True), ("alice", "wrong", False), ("bob", "right", False)):
        server = SaslServer({mechanism: scram(known.get, mechanism, UnknownUsers())})
        client = ScramClient([mechanism], user, password)
        frames: list[Any] = []
        ended: list[tuple[str | None, bool]] = []
        server.start(frames.append, lambda *outcome, ended=ended: ended.append(outcome))
        server.receive(SaslInit(mechanism=Symbol(mechanism), initial_response=client.get_client_first().encode()))
        client.set_server_first(bytes(frames.pop().challenge).decode())
        server.receive(SaslResponse(response=client.get_client_final().encode()))
        if expected:
            client.set_server_final(bytes(frames.pop().challenge).decode())
            server.receive(SaslResponse(response=b""))
        assert ended == [("alice" if expected else None, expected)]


def test_an_unknown_user_has_the_same_salt_each_time_and_another_one_than_others() -> None:
    unknown = UnknownUsers(15000)
    one = unknown.verifier("bob", "SCRAM-SHA-512")
    assert one == unknown.verifier("bob", "SCRAM-SHA-512")
    assert one.salt != unknown.verifier("bobby", "SCRAM-SHA-512").salt
    assert one.salt != UnknownUsers(15000).verifier("bob", "SCRAM-SHA-512").salt
    assert UnknownUsers(15000, b"key").verifier("bob") == UnknownUsers(15000, b"key").verifier("bob"), (
        "of two processes"
    )
    assert (len(one.salt), one.iterations, len(one.stored_key)) == (32, 15000, 64)
    assert len(verifier("right").salt) == 32
