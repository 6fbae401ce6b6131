"""SCRAM-SHA-256 of both sides, through SaslServer and SaslClient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enmasse.amqp.errors import AmqpError
from enmasse.amqp.sasl import SaslClient, SaslServer
from enmasse.identity.credentials import Credential, PeerEntry, Peers, peers_text
from enmasse.identity.roles import Peer, Role
from enmasse.identity.scram import of_peers, of_process, verifier


def _peers(folder: Path, **secrets: str) -> Peers:
    path = folder / "peers.json"
    path.write_text(peers_text({name: PeerEntry(Role.BROKER, verifier(secret)) for name, secret in secrets.items()}))
    return Peers(path)


def _exchange(peers: Peers, name: str, secret: str) -> tuple[str | None, bool]:
    """Return user and success of a whole exchange. Raises AmqpError as the client does."""
    server = SaslServer(of_peers(peers))
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
