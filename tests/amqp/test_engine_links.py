"""Attach, detach, refusal, stealing, handles and termini, the engine back to back with itself."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Attach, Detach, Source, Target
from enmasse.amqp.link import Link, Receiver, Sender
from tests.amqp.engine_kit import Pair, frames


def sent_by_server(pair: Pair, kind: type) -> list[Any]:
    return [p for _, p, _ in frames(pair.to_client) if type(p) is kind]


def sent_by_client(pair: Pair, kind: type) -> list[Any]:
    return [p for _, p, _ in frames(pair.to_server) if type(p) is kind]


def test_attach_and_detach() -> None:
    pair = Pair()
    link = pair.sender(properties={"a": 1})
    remote = pair.remote("s")
    assert isinstance(remote, Receiver) and remote.remote_target.address == "there"
    assert remote.remote_attach is not None and remote.remote_attach.properties == {"a": 1}
    assert link.attached and remote.attached and link.remote_source.address == "here"
    link.detach(closed=False)
    pair.run()
    assert pair.server.events[-1] == ("detach", "s", None, False)
    assert pair.client.events[-1] == ("detach", "s", None, False)
    assert pair.c.sessions()[0].links == [] == pair.s.sessions()[0].links
    again = pair.sender()
    assert again.attached and again.credit == 100


def test_refused_attach_has_a_null_terminus_and_then_the_error() -> None:
    pair = Pair()
    pair.server.attach = lambda link: link.refuse(AmqpError("amqp:not-found", "no such address"))
    pair.sender("a")
    pair.receiver("b")
    answers = sent_by_server(pair, Attach)
    assert answers[0].target is None and answers[1].source is None
    assert [d.error.condition for d in sent_by_server(pair, Detach)] == ["amqp:not-found"] * 2
    assert all(d.closed for d in sent_by_server(pair, Detach))
    assert ("detach", "a", "amqp:not-found", True) in pair.client.events
    assert ("detach", "b", "amqp:not-found", True) in pair.client.events


def test_raising_in_on_attach_refuses() -> None:
    pair = Pair()

    def refuse(_: Link) -> None:
        raise AmqpError("amqp:unauthorized-access", "not you")

    pair.server.attach = refuse
    pair.sender()
    assert pair.client.events[-1] == ("detach", "s", "amqp:unauthorized-access", True)


def test_attach_answered_later() -> None:
    pair = Pair()
    waiting: list[Link] = []
    pair.server.attach = waiting.append
    receiver = pair.receiver()
    assert not receiver.attached
    (remote,) = waiting
    assert isinstance(remote, Sender) and remote.credit == 0
    with pytest.raises(AmqpError, match="no credit"):
        remote.send(b"too early")
    remote.accept(target=Target(address="answered"))
    pair.run()
    assert receiver.attached and receiver.remote_target.address == "answered"
    assert remote.credit == 100
    remote.send(b"now")
    pair.run()
    assert pair.client.received == [b"now"]


def test_peer_detaches_before_the_attach_was_answered() -> None:
    pair = Pair()
    waiting: list[Link] = []
    pair.server.attach = waiting.append
    link = pair.sender()
    link.detach()
    pair.run()
    assert pair.client.events[-1] == ("detach", "s", None, True)
    waiting[0].accept()
    waiting[0].refuse(AmqpError("amqp:not-found"))
    pair.run()
    assert pair.c.state == pair.s.state == "open"


def test_a_link_attached_anew_steals_the_name() -> None:
    pair = Pair()
    pair.receiver("same")
    other = pair.c.begin().attach_receiver("same", Source(address="there"), Target())
    other.credit_window = 10
    pair.run()
    assert ("detach", "same", "amqp:link:stolen", True) in pair.client.events
    assert other.attached
    pair.remote("same").send(b"to the thief")
    pair.run()
    assert pair.client.received == [b"to the thief"]


def test_names_are_per_direction() -> None:
    pair = Pair()
    sender, receiver = pair.sender("same"), pair.receiver("same")
    assert sender.attached and receiver.attached
    assert sender.handle != receiver.handle


def test_handles_are_reused_and_hundreds_of_links_work() -> None:
    pair = Pair()
    links = [pair.sender(f"l{i}") for i in range(300)]
    for i, link in enumerate(links):
        link.send(b"%d" % i, i)
    pair.run()
    assert pair.server.received == [b"%d" % i for i in range(300)]
    assert [token for token, _, _ in pair.client.outcomes] == list(range(300))
    links[299].send(b"by a handle of four bytes", 1)  # ids above 255: the fast path
    pair.run()
    assert pair.server.received[-1] == b"by a handle of four bytes"
    handle = links[7].handle
    links[7].detach()
    pair.run()
    assert pair.sender("new").handle == handle


def test_termini_pass_through() -> None:
    pair = Pair()
    link = pair.c.begin().attach_receiver("dyn", Source(dynamic=True), Target())

    def give(link: Link) -> None:
        assert link.remote_source.dynamic and link.remote_source.address is None
        link.accept(source=Source(address="made-up", dynamic=True))

    pair.server.attach = give
    pair.run()
    assert link.remote_source.address == "made-up"
    anonymous = pair.c.sessions()[0].attach_sender(None, Source(), Target(address=None))
    pair.server.attach = lambda link: link.accept()
    pair.run()
    assert anonymous.attached and pair.server.links[anonymous.name].remote_target.address is None
