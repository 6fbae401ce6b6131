"""SCRAM messages of any form, on both sides: only the proof of the secret is accepted, and nothing else escapes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp import ScramClient

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.sasl.layer import SaslClient, SaslServer
from enmasse.identity.processes.credentials import Credential
from enmasse.identity.processes.roles import Role
from enmasse.identity.processes.scram import MOST_ITERATIONS, SCRAM, UnknownUsers, of_process, scram, verifier

SECRET = "the secret of alice"
KNOWN = {"alice": verifier(SECRET)}
SALT = "MTIzNDU2Nzg5MDEy"
AUTH = 1


class Server:
    """The server's side, and what it has answered."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.outcomes: list[tuple[str | None, bool]] = []
        self._sasl = SaslServer({SCRAM: scram(KNOWN.get, unknown=UnknownUsers())})
        self._sasl.start(self.frames.append, lambda *outcome: self.outcomes.append(outcome))
        self.frames.clear()

    def takes(self, message: bytes) -> Any:
        """Return the answer to a message of the client, the first one included."""
        if self._sasl.mechanism is None:
            self._sasl.receive(SaslInit(mechanism=Symbol(SCRAM), initial_response=message))
        else:
            self._sasl.receive(SaslResponse(response=message))
        return self.frames.pop()


def refused(answer: Any) -> bool:
    return isinstance(answer, SaslOutcome) and answer.code == AUTH


def client(user: str = "alice") -> Any:
    return ScramClient([SCRAM], user, SECRET)


FIRST = [
    b"", b",", b",,", b"n", b"n,", b"n,,", b"n,,n=alice", b"n,,r=abc", b"n,,n=,r=abc", b"n,,n=alice,r=",
    b"n,,r=abc,n=alice",
    b"n,,n=alice,n=bob,r=abc", b"n,,n=alice,r=abc,r=def", b"n,,n=alice,r=a\x00b", b"n,,n=alice,r=a b",
    b"n,,n=alice,r=a\xc3\xbc", b"n,,n=a\x00lice,r=abc", b"n,,n=a=lice,r=abc", b"n,,n=a=2clice,r=abc",
    b"n,,m=x,n=alice,r=abc", b"n,,n=alice,m=x,r=abc", b"n,,n=alice,r=abc,m=x",  # extensions that are mandatory
    b"n,a=root,n=alice,r=abc", b"n,a=alice,n=alice,r=abc", b"y,a=root,n=alice,r=abc", b"n,root,n=alice,r=abc",
    b"p=tls-unique,,n=alice,r=abc", b"p=tls-exporter,,n=alice,r=abc", b"p=tls-server-end-point,,n=alice,r=abc",
    b"p=,,n=alice,r=abc", b"p,,n=alice,r=abc", b"p=\xff,,n=alice,r=abc", b"x,,n=alice,r=abc", b"N,,n=alice,r=abc",
    b"yn,,n=alice,r=abc", b" n,,n=alice,r=abc", b"n,,n=alice,r=abc\n,", b"\xff\xfe", "n,,n=\u0007,r=abc".encode(),
    "n,,n=\u06271,r=abc".encode(), b"n,,n=\xed\xa0\x80,r=abc",
]  # fmt: skip


@pytest.mark.parametrize("message", FIRST)
def test_a_first_message_of_another_form_is_refused(message: bytes) -> None:
    assert refused(Server().takes(message))


@pytest.mark.parametrize("header", [b"n,,", b"y,,"])
def test_the_flag_for_channel_binding_support_changes_nothing(header: bytes) -> None:
    """`y`: it believes that the server does not. The server says so, as it offers no mechanism with -PLUS."""
    answer = Server().takes(header + b"n=alice,r=abc")
    assert isinstance(answer, SaslChallenge) and answer.challenge.startswith(b"r=abc")


def proof(first: str, server_first: str, final: str) -> str:
    """Return the proof of the secret for any messages, as an attacker cannot compute it."""
    salted = hashlib.pbkdf2_hmac("sha256", SECRET.encode(), KNOWN["alice"].salt, 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signed = ",".join((first, server_first, final)).encode()
    signature = hmac.digest(KNOWN["alice"].stored_key, signed, "sha256")
    return base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()


BINDINGS = {"biws": True, "eSws": False, "": False, "cD10bHMtdW5pcXVlLCw=": False, "biws\n": False, "=": False}
"""Value of `c` → whether a client that began with `n,,` may send it."""


@pytest.mark.parametrize(
    ("final", "accepted"),
    [
        *[(f"c={value},r={{nonce}}", good) for value, good in BINDINGS.items()],
        ("c=biws,r={nonce}x", False), ("c=biws,r=abc", False), ("c=biws,r=", False), ("r={nonce},c=biws", False),
        ("c=biws,r={nonce},r={nonce}", False), ("c=biws,c=biws,r={nonce}", False), ("c=biws", False),
        ("r={nonce}", False), ("c=biws,r={nonce},m=x", False), ("m=x,c=biws,r={nonce}", False),
        ("c=biws,r={nonce},z=unknown", True), ("c=biws,n=bob,r={nonce}", False),
        ("c=biws,r={nonce},s=" + SALT, False), ("c=biws,r={nonce},i=1", False),
    ],
)  # fmt: skip
def test_a_final_message_of_another_form_is_refused_also_with_the_right_proof(final: str, accepted: bool) -> None:
    server = Server()
    first = server.takes(b"n,,n=alice,r=abc").challenge.decode()
    text = final.replace("{nonce}", first.partition(",")[0][2:])
    answer = server.takes(f"{text},p={proof('n=alice,r=abc', first, text)}".encode())
    assert isinstance(answer, SaslChallenge) if accepted else refused(answer)
    assert not server.outcomes or server.outcomes == [(None, False)]


texts = st.text(alphabet="nyparcsimve=,0129AZaz+/-\0 \u00fc\u200b\ud7ff", max_size=60).map(str.encode)
attributes = st.lists(
    st.builds("{}={}".format, st.sampled_from("anmrcsipvexZ"), st.text(alphabet="abiws=0123,\0\u00fc", max_size=12)),
    max_size=7,
).map(lambda found: ",".join(found).encode())
messages = st.one_of(texts, attributes, st.binary(max_size=80), st.builds(b"n,,".__add__, attributes))


@given(st.lists(messages, min_size=1, max_size=4))
@settings(deadline=None, max_examples=300)
def test_no_sequence_of_messages_proves_a_secret(sent: list[bytes]) -> None:
    server = Server()
    for message in sent:
        if server.outcomes:
            break
        server.takes(message)
    assert server.outcomes in ([], [(None, False)])


@given(st.integers(0, 10_000), st.integers(0, 255), st.sampled_from(["set", "insert", "delete"]))
@settings(deadline=None, max_examples=300)
def test_a_changed_final_message_is_refused_unless_it_means_the_same(at: int, byte: int, how: str) -> None:
    server, real = Server(), client()
    real.set_server_first(server.takes(real.get_client_first().encode()).challenge.decode())
    good = real.get_client_final().encode()
    at %= len(good)
    bad = good[:at] + (b"" if how == "delete" else bytes((byte,))) + good[at + (how != "insert") :]
    answer = server.takes(bad)
    if not refused(answer):
        head, _, value = bad.partition(b",p=")
        assert (head, base64.b64decode(value)) == (
            good.partition(b",p=")[0],
            base64.b64decode(good.partition(b",p=")[2]),
        )


def test_a_final_message_of_another_exchange_is_refused() -> None:
    server, real = Server(), client()
    real.set_server_first(server.takes(real.get_client_first().encode()).challenge.decode())
    final = real.get_client_final().encode()
    other = Server()
    other.takes(f"n,,n=alice,r={real.c_nonce}".encode())
    assert refused(other.takes(final))


# --- the client's side: a server that pretends ------------------------------------------------------------------------


def begun() -> tuple[SaslClient, str]:
    """Return a client that has sent its first message, with its nonce."""
    found = SaslClient([of_process(Credential("alice", Role.BROKER, SECRET))])
    first = found.receive(SaslMechanisms(sasl_server_mechanisms=(Symbol(SCRAM),))).initial_response.decode()
    return found, first.rpartition("r=")[2]


HOSTILE = [
    "r={nonce}x,s={salt}", "r={nonce}x,i=4096", "s={salt},i=4096", "r={nonce}x,i=4096,s={salt}", "",
    "r={nonce}x,r={nonce}x,s={salt},i=4096", "r={nonce}x,s={salt},i=4096,i=5000", "m=x,r={nonce}x,s={salt},i=4096",
    "r={nonce}x,s={salt},i=4096,m=x", "r=x{nonce},s={salt},i=4096", "r=,s={salt},i=4096", "r={nonce}x,s=,i=4096",
    "r={nonce}x,s=AA==,i=4096", "r={nonce}x,s=!!!!,i=4096", "r={nonce}x,s={salt},i=", "r={nonce}x,s={salt},i=-1",
    "r={nonce}x,s={salt},i=4096.0", "r={nonce}x,s={salt},i=1e9", "r={nonce}x,s={salt},i=\u0664\u0660\u0669\u0666",
    "r={nonce}x,s={salt},i=04096", "r={nonce}x,s={salt},i=0x1000", "r={nonce}x,s={salt},i=99999999",
    "r={nonce}x,s={salt},i=4096,i=99999999", "r={nonce}x,s={salt}, i=4096", "e=other-error", "v=AAAA", "p=x",
]  # fmt: skip


@pytest.mark.parametrize("challenge", HOSTILE)
def test_a_first_message_of_the_server_in_another_form_is_refused(challenge: str) -> None:
    found, nonce = begun()
    text = challenge.replace("{nonce}", nonce).replace("{salt}", SALT)
    with pytest.raises(AmqpError) as caught:
        found.receive(SaslChallenge(challenge=text.encode()))
    assert caught.value.condition == "amqp:unauthorized-access"


@pytest.mark.parametrize("more", ["", "x" * 7000, "," + "z=1," * 1000 + "z=1"])
def test_the_largest_count_and_salt_cost_a_client_a_second_or_two(more: str) -> None:
    found, nonce = begun()
    salt = base64.b64encode(b"s" * (6000 if not more else 12)).decode()
    nonce += more if more.startswith("x") else "x"
    text = f"r={nonce},s={salt},i={MOST_ITERATIONS}{more if more.startswith(',') else ''}"
    began = time.process_time()
    try:
        answer = found.receive(SaslChallenge(challenge=text.encode()))
        assert answer.response.startswith(b"c=biws,r=")
    except AmqpError as error:
        assert error.condition == "amqp:unauthorized-access"
    assert time.process_time() - began < 10


@given(st.lists(messages, min_size=1, max_size=4), st.binary(max_size=40), st.booleans())
@settings(deadline=None, max_examples=200)
def test_no_server_without_the_verifier_is_accepted(sent: list[bytes], last: bytes, starts_well: bool) -> None:
    found, nonce = begun()
    if starts_well:
        found.receive(SaslChallenge(challenge=f"r={nonce}x,s={SALT},i=4096".encode()))
    with pytest.raises(AmqpError) as caught:
        for message in sent:
            found.receive(SaslChallenge(challenge=message))
        found.receive(SaslOutcome(code=0, additional_data=last))
    assert caught.value.condition == "amqp:unauthorized-access"
    assert not found.done
