"""Our engine and Proton's, back to back, each in both parts."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Data, Delivery, Link

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Modified, Rejected, Source, Target
from enmasse.amqp.connection import Connection
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Receiver, Sender
from enmasse.amqp.sasl.layer import AnonymousClient, PlainClient, SaslClient, SaslServer, anonymous, plain
from tests.amqp.engine_kit import Recorder
from tests.amqp.proton_kit import ProtonPeer, closed


def served(handler: Recorder | None = None, **fields: Any) -> tuple[Recorder, Connection, ProtonPeer]:
    """We serve, Proton is the client."""
    handler = handler or Recorder()
    engine = Connection(handler, container_id="ours", is_client=False, **fields)
    return handler, engine, ProtonPeer(engine)


def dialled(handler: Recorder | None = None, **fields: Any) -> tuple[Recorder, Connection, ProtonPeer]:
    """Proton serves, we are the client."""
    handler = handler or Recorder()
    engine = Connection(handler, container_id="ours", is_client=True, **fields)
    return handler, engine, ProtonPeer(engine)


def pump_sender(peer: ProtonPeer, link: Any, bodies: list[bytes], settled: bool = False) -> list[Any]:
    deliveries = []
    for i, body in enumerate(bodies):
        while not link.credit:
            peer.run()
        deliveries.append(peer.send(link, body, f"tag{i}", settled))
    peer.run()
    return deliveries


# --- Proton as the client ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame_size", [512, 16384, 65536])
def test_proton_sends(frame_size: int) -> None:
    handler, engine, peer = served(max_frame_size=frame_size)
    peer.open()
    link = peer.sender(peer.session(), "s")
    link.open()
    bodies = [b"%d" % i for i in range(600)] + [bytes(range(256)) * 20_000, b"", b"after"]
    deliveries = pump_sender(peer, link, bodies)
    assert handler.received == bodies
    assert all(d.remote_state == Delivery.ACCEPTED and d.settled for d in deliveries)
    assert engine.remote_open is not None and engine.remote_open.container_id == "proton"


@pytest.mark.parametrize("frame_size", [512, 16384, 65536])
def test_proton_receives(frame_size: int) -> None:
    handler, _, peer = served()
    peer.transport.max_frame_size = frame_size
    peer.open()
    link = peer.receiver(peer.session(), "r")
    link.open()
    link.flow(10)
    peer.run()
    sender = handler.links["r"]
    assert isinstance(sender, Sender)
    bodies = [b"%d" % i for i in range(600)] + [bytes(range(256)) * 20_000, b"after"]
    for i, body in enumerate(bodies):
        while not sender.credit:
            peer.run()
        sender.send(body, i)
    peer.run()
    assert peer.received == bodies
    assert handler.outcomes == [(i, ACCEPTED, True) for i in range(len(bodies))]


def test_proton_sends_presettled() -> None:
    handler, engine, peer = served()
    peer.open()
    link = peer.sender(peer.session(), "s")
    link.snd_settle_mode = Link.SND_SETTLED
    link.open()
    pump_sender(peer, link, [b"%d" % i for i in range(500)], settled=True)
    assert handler.received == [b"%d" % i for i in range(500)]
    assert all(e[2] for e in handler.events if e[0] == "delivery")
    assert handler.links["s"].snd_settle_mode == 1
    assert engine.sessions()[0].unsettled_in()[1] == {}


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (RELEASED, Delivery.RELEASED),
        (Rejected(), Delivery.REJECTED),
        (Modified(undeliverable_here=True), Delivery.MODIFIED),
    ],
)
def test_outcomes_that_proton_sees(outcome: Any, state: int) -> None:
    _, _, peer = served(Recorder(outcome=outcome))
    peer.open()
    link = peer.sender(peer.session(), "s")
    link.open()
    (delivery,) = pump_sender(peer, link, [b"x"])
    assert delivery.remote_state == state and delivery.settled
    assert delivery.remote.undeliverable == isinstance(outcome, Modified)


def test_modified_with_annotations_from_proton() -> None:
    handler, _, peer = served()
    peer.accept = False
    peer.settle_received = False
    peer.open()
    link = peer.receiver(peer.session(), "r")
    link.open()
    link.flow(10)
    peer.run()
    sender = handler.links["r"]
    assert isinstance(sender, Sender)
    kept: list[Any] = []
    peer.on_delivery = lambda delivery: kept.append(delivery)  # type: ignore[method-assign]  # watched by the test
    sender.send(b"x", "t")
    peer.run()
    delivery = kept[0]
    delivery.local.failed = True
    delivery.local.undeliverable = True
    delivery.local.annotations = {"x-opt-reason": "tired"}
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    peer.run()
    ((token, state, settled),) = handler.outcomes
    assert (token, settled) == ("t", True) and isinstance(state, Modified)
    assert state.delivery_failed and state.undeliverable_here
    assert state.message_annotations == {"x-opt-reason": "tired"}


def test_rejected_with_an_error_from_proton_and_to_it() -> None:
    from proton import Condition

    from enmasse.amqp.codec.performatives import Error
    from enmasse.amqp.codec.types import Symbol

    error = Error(condition=Symbol("amqp:not-allowed"), description="because", info={})
    _, _, peer = served(Recorder(outcome=Rejected(error=error)))
    peer.open()
    session = peer.session()
    link = peer.sender(session, "s")
    link.open()
    (delivery,) = pump_sender(peer, link, [b"x"])
    assert delivery.remote.condition == Condition("amqp:not-allowed", "because")


def test_rcv_settle_mode_second_with_proton_as_sender() -> None:
    handler, engine, peer = served()
    peer.open()
    link = peer.sender(peer.session(), "s")
    link.rcv_settle_mode = Link.RCV_SECOND
    link.open()
    (delivery,) = pump_sender(peer, link, [b"x"])
    assert delivery.remote_state == Delivery.ACCEPTED and not delivery.settled
    assert not any(e[0] == "settled" for e in handler.events)
    delivery.settle()
    peer.run()
    assert [e[1] for e in handler.events if e[0] == "settled"] == [[0]]
    assert engine.sessions()[0].unsettled_in()[1] == {}


def test_proton_aborts() -> None:
    handler, engine, peer = served(max_frame_size=512)
    peer.open()
    link = peer.sender(peer.session(), "s")
    link.open()
    peer.run()
    delivery = link.delivery("lost")
    link.send(b"x" * 2000)
    peer.run()
    assert engine.held.assembling > 0
    delivery.abort()
    peer.run()
    pump_sender(peer, link, [b"whole"])
    assert handler.received == [b"whole"]
    assert engine.held.assembling == 0


def test_proton_drains() -> None:
    handler, _, peer = served()
    peer.open()
    link = peer.receiver(peer.session(), "r")
    link.open()
    link.drain(10)
    peer.run()
    assert link.credit == 0 and link.drained() == 10
    sender = handler.links["r"]
    assert isinstance(sender, Sender) and sender.credit == 0


def test_dynamic_and_anonymous_termini_with_proton() -> None:
    handler, _, peer = served()
    handler.attach = lambda link: link.accept(
        source=Source(address="made-up", dynamic=True) if link.is_sender and link.remote_source.dynamic else None
    )
    peer.open()
    session = peer.session()
    receiver = peer.receiver(session, "dynamic", None)
    receiver.source.dynamic = True
    receiver.open()
    sender = peer.sender(session, "anonymous", None)
    sender.open()
    peer.run()
    assert receiver.remote_source.address == "made-up" and receiver.remote_source.dynamic
    assert handler.links["anonymous"].remote_target.address is None


def test_refusal_that_proton_sees() -> None:
    handler, _, peer = served()

    def refuse(link: Any) -> None:
        link.refuse(AmqpError("amqp:not-found", "no such address", {"hint": 1}))

    handler.attach = refuse
    peer.open()
    link = peer.receiver(peer.session(), "r")
    link.open()
    peer.run()
    assert closed(link)
    assert link.remote_condition.name == "amqp:not-found"
    assert link.remote_condition.description == "no such address"


def test_detach_and_attach_again_by_proton() -> None:
    handler, _, peer = served()
    peer.open()
    session = peer.session()
    link = peer.receiver(session, "durable")
    link.source.durability = 2
    link.source.expiry_policy = 3
    link.open()
    peer.run()
    assert handler.links["durable"].remote_source.durable == 2
    assert handler.links["durable"].remote_source.expiry_policy == "never"
    link.detach()
    peer.run()
    assert handler.events[-1] == ("detach", "durable", None, False)
    link.free()
    again = peer.receiver(session, "durable")
    again.open()
    again.flow(5)
    peer.run()
    sender = handler.links["durable"]
    assert isinstance(sender, Sender) and sender.credit == 5
    again.close()
    peer.run()
    assert handler.events[-1] == ("detach", "durable", None, True)


def test_channel_max_with_proton() -> None:
    _, engine, peer = served(channel_max=2)
    peer.open()
    assert peer.transport.remote_channel_max == 2
    for _ in range(3):
        peer.session()
    peer.run()
    assert len(engine.sessions()) == 3
    _, engine, peer = dialled()
    peer.transport.channel_max = 1
    peer.open()
    engine.begin()
    engine.begin()
    with pytest.raises(AmqpError, match="more than 2 sessions"):
        engine.begin()


def test_idle_timeout_with_proton() -> None:
    handler, engine, peer = served(idle_timeout_ms=1000)
    peer.transport.idle_timeout = 0.5
    peer.open()
    assert peer.transport.remote_idle_timeout == 0.5
    for now in range(1, 20):  # both are heard all the time
        peer.transport.tick(now * 0.2)
        assert engine.tick(now * 200) is not None
        peer.run()
    assert engine.state == "open" and not peer.transport.closed
    engine.tick(10_000)  # Proton has fallen silent
    engine.tick(11_000)
    peer.run()
    assert peer.connection.remote_condition.name == "amqp:resource-limit-exceeded"
    assert peer.connection.remote_condition.description == "local-idle-timeout expired"
    assert handler.events[-1] == ("close", "amqp:resource-limit-exceeded")


@pytest.mark.parametrize(("user", "password", "good"), [("guest", "secret", True), ("guest", "wrong", False)])
def test_plain_with_proton_as_client(user: str, password: str, good: bool) -> None:
    _, engine, peer = served(sasl=SaslServer({"PLAIN": plain({"guest": "secret"})}))
    peer.connection.user = user
    peer.connection.password = password
    sasl = peer.transport.sasl()
    sasl.allowed_mechs("PLAIN")
    sasl.allow_insecure_mechs = True
    peer.open()
    assert engine.user == ("guest" if good else None)
    assert (engine.state == "open") == good
    if not good:
        assert peer.transport.condition.name == "amqp:unauthorized-access"


def test_anonymous_with_proton_on_both_sides() -> None:
    _, engine, peer = served(sasl=SaslServer({"ANONYMOUS": anonymous}))
    peer.transport.sasl().allowed_mechs("ANONYMOUS")
    peer.open()
    assert engine.user == "anonymous" and engine.state == "open"
    _, engine, peer = dialled(sasl=SaslClient([PlainClient("u", "p"), AnonymousClient()]))
    sasl = peer.transport.sasl()
    sasl.allowed_mechs("ANONYMOUS")
    peer.open()
    assert engine.state == "open"
    assert peer.transport.user == "anonymous"


# --- Proton as the server ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame_size", [512, 65536])
def test_we_send_to_proton(frame_size: int) -> None:
    handler, engine, peer = dialled()
    peer.transport.max_frame_size = frame_size
    peer.open()
    link = engine.begin().attach_sender("s", Source(), Target(address="a"))
    bodies = [b"%d" % i for i in range(600)] + [bytes(range(256)) * 20_000, b"after"]
    peer.run()
    for i, body in enumerate(bodies):
        while not link.credit:
            peer.run()
        link.send(body, i)
    peer.run()
    assert peer.received == bodies
    assert [token for token, state, _ in handler.outcomes if state is ACCEPTED] == list(range(len(bodies)))


def test_we_receive_from_proton_and_drain_it() -> None:
    handler, engine, peer = dialled()
    peer.open()
    link = engine.begin().attach_receiver("r", Source(address="a"), Target())
    link.credit_window = 10
    peer.run()
    theirs = peer.connection.link_head(0)
    pump_sender(peer, theirs, [b"%d" % i for i in range(600)])
    assert handler.received == [b"%d" % i for i in range(600)]
    link.drain_credit()
    peer.run()
    assert theirs.drain_mode
    theirs.drained()
    peer.run()
    assert handler.events[-1] == ("drained", "r") and link.credit == 0
    assert isinstance(link, Receiver) and link.unsettled == 0


def test_we_abort_and_stream_to_proton() -> None:
    handler, engine, peer = dialled()
    peer.open()
    link = engine.begin().attach_sender("s", Source(), Target(address="a"))
    peer.run()
    for ending in ("abort", "finish"):
        delivery = link.begin(ending)
        for _ in range(5):
            delivery.write(b"piece ")
            peer.run()
        getattr(delivery, ending)()
        peer.run()
    assert peer.received == [b"piece " * 5]
    assert handler.outcomes == [("finish", ACCEPTED, True)]


def test_second_mode_with_proton_as_receiver() -> None:
    handler, engine, peer = dialled()
    peer.settle_received = False
    peer.open()
    link = engine.begin().attach_sender("s", Source(), Target(address="a"), rcv_settle_mode=1)
    peer.run()
    link.send(b"x", "t")
    peer.run()
    assert handler.outcomes == [("t", ACCEPTED, False)]
    link.settle(["t"])
    peer.run()
    assert link.unsettled == 0


def test_window_of_proton_is_kept() -> None:
    """Proton grants a window of few frames when its session has a small capacity."""
    _, engine, peer = dialled()
    peer.transport.max_frame_size = 512
    peer.capacity = 2048
    peer.open()
    session = engine.begin()
    link = session.attach_sender("s", Source(), Target(address="a"))
    peer.run()
    assert session.remote_begin is not None and session.remote_begin.incoming_window == 4
    body = b"y" * 100_000
    link.send(body, 1)
    peer.run()
    assert peer.received == [body]


def test_errors_of_ours_reach_proton() -> None:
    _, engine, peer = served()
    peer.open()
    session = peer.session()
    link = peer.sender(session, "s")
    link.open()
    peer.run()
    engine.sessions()[0].links[0].detach(AmqpError("amqp:resource-deleted", "gone"))
    peer.run()
    assert link.remote_condition.name == "amqp:resource-deleted"
    engine.sessions()[0].end(AmqpError("amqp:internal-error", "ended"))
    peer.run()
    assert session.remote_condition.name == "amqp:internal-error"
    engine.close(AmqpError("amqp:connection:forced", "shutting down"))
    peer.run()
    assert peer.connection.remote_condition.name == "amqp:connection:forced"


def test_open_properties_reach_proton() -> None:
    _, engine, peer = served(
        properties={"product": "enmasse"}, offered_capabilities=("ANONYMOUS-RELAY",), limits=Limits(max_sessions=9)
    )
    peer.connection.properties = {"version": 3}
    peer.connection.hostname = "vhost"
    peer.open()
    assert dict(peer.connection.remote_properties) == {"product": "enmasse"}
    offered = peer.connection.remote_offered_capabilities
    assert Data is not None and "ANONYMOUS-RELAY" in str(offered)
    assert engine.remote_open is not None
    assert engine.remote_open.hostname == "vhost" and engine.remote_open.properties == {"version": 3}
