"""`sessions`, `subscriptions` and `retained`: what the subscription service keeps for clients."""

from __future__ import annotations

from typing import Any

import msgspec

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.message import Message
from enmasse.api.types import Page, Retained, RetainedMessage, Session, Subscription
from enmasse.logs import log
from enmasse.model import sessions as wire
from enmasse.model.names import space_of
from services.console.door.access import Caller
from services.console.errors import RequestError, unknown
from services.console.following.kept import MOST, by_topic, space_of_row, subscription
from services.console.jobs.queue_messages import text_of
from services.console.rest import writing
from services.console.rest.api_operations import Answer, Call, Operation
from services.console.rest.components import Components
from services.console.rest.listing import Listing

MOST_SHOWN = 64 << 10
"""Bytes of the payload of a retained message that are shown."""


def operations(parts: Components) -> list[Operation]:
    """Return the operations."""
    service = parts.subscribers

    sessions, subscriptions, retained = parts.sessions, parts.subscriptions, parts.retained
    of_sessions: Listing[Session] = Listing(
        rows=sessions,
        shown=lambda caller, row: row if caller.viewer or caller.owns(row.user) else None,
        filters={
            "client": lambda row: row.client,
            "user": lambda row: row.user,
            "gateway": lambda row: row.gateway,
            "connected": lambda row: row.connected,
        },
        sorts={"since": lambda row: row.since, "inFlight": lambda row: row.in_flight},
        kinds={"connected": bool},
    )
    of_subscriptions: Listing[Subscription] = Listing(
        rows=subscriptions,
        shown=shown_subscription,
        filters={
            "kind": lambda row: row.kind,
            "client": lambda row: row.client,
            "user": lambda row: row.user,
            "connected": lambda row: row.connected,
        },
        sorts={"depth": lambda row: row.depth, "since": lambda row: row.since},
        kinds={"connected": bool},
    )
    of_retained: Listing[Retained] = Listing(
        rows=retained,
        shown=lambda caller, row: row if caller.covers("view", row.names) else None,
        filters={"topic": lambda row: row.topic, "user": lambda row: row.user, "broker": lambda row: row.broker},
        sorts={"size": lambda row: row.size, "since": lambda row: row.since},
        kinds={},
    )

    async def get_subscription(call: Call) -> Answer:
        call.parameters()
        id, what = call.name("id"), f"subscription {call.name('id')[:200]!r}"
        found = await service.ask("subscription", wire.ById(id=id), wire.SubscriptionRow, what)
        row = subscription(found)
        if space_of_row(found) != parts.space or shown_subscription(call.caller, row) is None:
            raise unknown(what)
        return Answer(row)

    async def get_retained(call: Call) -> Answer:
        call.parameters()
        topic, what = call.name("topic"), f"retained message of {call.name('topic')[:200]!r}"
        row = await of_retained.one(call.caller, topic, "retained message of")
        found = RetainedMessage(**msgspec.structs.asdict(row))
        if not call.caller.covers("recv", row.names):
            return Answer(found)
        name = wire.ByName(name=parts.inside(row.names[0]))
        there = await service.ask("retained_message", name, wire.RetainedMessage, what)
        try:
            message = Message.decode(there.message)
        except AmqpError:
            message = Message(there.message)
        encoding, payload, cut = text_of(message.body, MOST_SHOWN)
        kind = None if message.content_type is None else str(message.content_type)
        return Answer(
            msgspec.structs.replace(found, content_type=kind, encoding=encoding, payload=payload, truncated=cut)
        )

    async def delete_session(call: Call) -> Answer:
        call.parameters()
        id, what = call.name("id"), f"session {call.name('id')[:200]!r}"
        await sessions.fresh()
        row = sessions.get(id)
        if row is None or of_sessions.shown(call.caller, row) is None:
            raise unknown(what)
        if not call.caller.owns(row.user):
            writing.administers(call.caller)
        there = (await service.ask("subscriptions", None, wire.SubscriptionsReply)).subscriptions
        found = next((each.id for each in there if each.kind == "mqtt" and each.client == id), None)
        if found is None:
            raise unknown(what)
        await service.ask("delete", wire.ById(id=found, by=call.caller.title), wire.Done, what)
        _audit(call, what)
        await parts.kept.renew_sessions()
        return Answer(status=204)

    async def delete_subscription(call: Call) -> Answer:
        call.parameters()
        id, what = call.name("id"), f"subscription {call.name('id')[:200]!r}"
        await subscriptions.fresh()
        row = subscriptions.get(id)
        if row is None or shown_subscription(call.caller, row) is None:
            raise unknown(what)
        if not call.caller.owns(row.user) and not call.caller.covers("manage", row.names):
            raise RequestError("console.permission.denied", "this needs the permission `manage` on all its filters")
        if row.kind == "share":
            raise RequestError(
                "console.change.refused",
                "a shared subscription ends with its last member: delete these sessions, or have them unsubscribe",
            )
        await service.ask("delete", wire.ById(id=id, by=call.caller.title), wire.Done, what)
        _audit(call, what)
        await parts.kept.renew_sessions()
        return Answer(status=204)

    async def clear(call: Call) -> Answer:
        call.parameters()
        topic, what = call.name("topic"), f"retained message of {call.name('topic')[:200]!r}"
        if "+" in topic or "#" in topic:
            raise RequestError("console.change.refused", "a topic with + or # would be taken for a filter")
        full = parts.inside(topic)
        if space_of(full) != parts.space:
            raise unknown(what)
        there = await service.ask("retained", wire.ByFilter(filter=full, limit=MOST), wire.RetainedReply, what)
        row = by_topic(there.retained).get(full)
        if row is None or of_retained.shown(call.caller, row) is None:
            raise unknown(what)
        if not call.caller.covers("manage", row.names):
            raise RequestError("console.permission.denied", "this needs the permission `manage` on the topic")
        await service.ask("clear_retained", wire.ByFilter(filter=full), wire.Done, what)
        _audit(call, what)
        await parts.kept.retained.renew()
        return Answer(status=204)

    def listed(path: str, id: str, text: str, listing: Listing[Any], kind: Any) -> Operation:
        return Operation(
            method="GET", path=path, id=id, tag="subscriptions", text=text, handler=parts.lists.of(listing),
            answer=Page[kind], parameters=listing.parameters, errors=(502,), watched=True,
        )  # fmt: skip

    def gets(path: str, id: str, text: str, handler: Any, kind: Any) -> Operation:
        return Operation(
            method="GET", path=path, id=id, tag="subscriptions", text=text, handler=handler, answer=kind, errors=(502,)
        )

    def deletes(path: str, id: str, text: str, handler: Any) -> Operation:
        return Operation(
            method="DELETE", path=path, id=id, tag="subscriptions", text=text, handler=handler, status=204,
            errors=(422, 502),
        )  # fmt: skip

    return [
        listed("/sessions", "listSessions", "MQTT sessions.", of_sessions, Session),
        gets("/sessions/{id}", "getSession", "An MQTT session.", of_sessions.getter("session", "id"), Session),
        deletes("/sessions/{id}", "deleteSession", "Delete a session with what waits for it.", delete_session),
        listed(
            "/subscriptions", "listSubscriptions", "Subscriptions that outlive connections.", of_subscriptions,
            Subscription,
        ),
        gets("/subscriptions/{id}", "getSubscription", "A subscription.", get_subscription, Subscription),
        deletes(
            "/subscriptions/{id}", "deleteSubscription", "Delete a subscription with what waits for it.",
            delete_subscription,
        ),
        listed("/retained", "listRetained", f"Retained messages, {MOST:,} at most.", of_retained, Retained),
        gets(
            "/retained/{topic}", "getRetained", "The retained message of a topic, with its payload.", get_retained,
            RetainedMessage,
        ),
        deletes("/retained/{topic}", "clearRetained", "Clear the retained message of a topic.", clear),
    ]  # fmt: skip


def shown_subscription(caller: Caller, row: Subscription) -> Subscription | None:
    """Return the row if it is the caller's own, or if the caller may view everything that its filters match."""
    return row if caller.owns(row.user) or caller.covers("view", row.names) else None


def _audit(call: Call, what: str) -> None:
    log.audit(
        "audit.session.deleted",
        who=call.caller.title, role=call.caller.role, from_=call.host, what=what, outcome="deleted",
        space=call.caller.space,
    )  # fmt: skip
