"""Clients without a password that send frames in any order: none gets an Open."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.amqp.codec.frames import HEADER
from enmasse.amqp.codec.performatives import Open, SaslInit, SaslOutcome, SaslResponse, encode_performative
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.sasl.handshake import AMQP_HEADER, SASL_HEADER
from enmasse.model import feeds
from enmasse.model.issuers import Issuer
from services.authserv import authenticator
from services.authserv.app import AuthService, AuthservSettings
from services.authserv.issuer_http import IssuerError
from tests.authserv.running import user

NAMES = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "XOAUTH2", "ANONYMOUS", "EXTERNAL", "")
ISSUER = Issuer(issuer="http://127.0.0.1:1", audience="a", client_id="c")
USERS = feeds.Users(users={"alice": user("right")}, issuers={"one": ISSUER})
SETTINGS = AuthservSettings(name="authserv", health="127.0.0.1:1", listen="127.0.0.1:1", configserv="127.0.0.1:1")


def frame(performative: Any, kind: int) -> bytes:
    body = encode_performative(performative)
    return HEADER(len(body) + 8, 2, kind, 0) + body


texts = st.one_of(
    st.sampled_from([
        b"", b"\0alice\0wrong", b"alice\0alice\0wrong", b"\0anonymous\0", b"\0@g\0x", b"n,,n=alice,r=abc",
        b"y,,n=alice,r=abc",
        b"n,a=root,n=alice,r=abc", b"p=tls-unique,,n=alice,r=abc", b"c=biws,r=abc,p=AAAA", b"c=biws,r=abc,p=", b"\x01",
        b"n,,\x01auth=Bearer a.b.c\x01\x01", b"user=alice\x01auth=Bearer eyJ.eyJ.x\x01\x01",
    ]),
    st.binary(max_size=40),
    st.binary(min_size=9000, max_size=9000),
)  # fmt: skip
frames = st.one_of(
    st.just(SASL_HEADER),
    st.just(AMQP_HEADER),
    st.builds(lambda name, text: frame(SaslInit(mechanism=Symbol(name), initial_response=text), 1),
              st.sampled_from(NAMES), texts | st.none()),
    st.builds(lambda text: frame(SaslResponse(response=text), 1), texts),
    st.just(frame(SaslOutcome(code=0), 1)),
    st.just(frame(Open(container_id="x"), 0)),
    st.binary(max_size=20),
)  # fmt: skip


async def opened(data: list[bytes]) -> Connection:
    """Return the service's side of a connection after a client has sent this."""
    service = AuthService(SETTINGS, asyncio.get_running_loop())
    service.logins.replace(USERS)
    connection = service.connection(SimpleNamespace(address="192.0.2.1:1"))
    for each in data:
        if connection.finished:
            break
        connection.receive(each)
        while service.logins._tasks:
            await asyncio.wait(service.logins._tasks)
    await service.logins.close()
    return connection


@given(st.lists(frames, max_size=8), st.booleans())
@settings(deadline=None, max_examples=150)
def test_no_sequence_of_frames_is_a_login(data: list[bytes], begun: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authenticator, "DELAY", 0.0)
        patch.setattr("enmasse.identity.proofs.passwords.PasswordChecks._compute", lambda *_: False)
        patch.setattr("services.authserv.issuer_http.Documents._request", away)
        connection = asyncio.run(opened([SASL_HEADER, *data] if begun else data))
    assert connection.state != "open"
    assert connection.user is None


async def away(*_: Any, **__: Any) -> None:
    raise IssuerError("away")


def test_an_endless_exchange_ends() -> None:
    init = frame(SaslInit(mechanism=Symbol("PLAIN"), initial_response=None), 1)
    connection = asyncio.run(opened([SASL_HEADER, init, *[frame(SaslResponse(response=b""), 1)] * 100]))
    assert connection.finished
