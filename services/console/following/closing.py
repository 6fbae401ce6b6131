"""Closing a client's connection, at the router, gateway or broker that has it."""

from __future__ import annotations

import asyncio

from enmasse.api.types import Connection
from enmasse.control import Artemis, ControlError, Dispatch
from enmasse.model.sessions import ByClient, Done
from services.console.errors import RequestError, unknown
from services.console.following.followed_process import Node
from services.console.following.followers import Live
from services.console.following.subscribers import Subscribers

CLOSING = 10.0
_NOT_CLOSED = {
    "http": "a client of HTTP connects again with its next request",
    "coap": "a client of CoAP has no connection to close",
    "stomp": "a connection of STOMP cannot be closed from here",
}
"""Protocol → why a connection is not closed."""


async def close_connection(live: Live, subscribers: Subscribers, row: Connection, by: str = "") -> None:
    """Close a connection of a client or process. `by`: the operator. Raises RequestError."""
    id = row.id.removeprefix(f"{row.component}/")
    if (reason := _NOT_CLOSED.get(row.protocol)) is not None:
        raise RequestError("console.request.invalid", f"{reason}: take the client's permissions away, or its user")
    if any(row.component == gateway.component for gateway in live.gateways.values()):
        await subscribers.ask("disconnect", ByClient(client=id, by=by), Done, f"connection {row.id[:200]!r}")
        return
    broker = next((each for each in live.brokers.values() if each.component == row.component), None)
    router = next((each for each in live.routers if each.component == row.component), None)
    node = router if broker is None else broker
    if node is None:
        raise RequestError("console.service.unavailable", f"{row.component} is not reached; try again")
    connection = node.connection
    try:
        await (_close_at_router(node, id, by) if broker is None else _close_at_broker(node, id))
    except RequestError:
        if row.inside and connection is not None and connection.error is not None:
            return  # the connection was the console's own, and the answer went with it
        raise


async def _close_at_router(router: Node, id: str, by: str) -> None:
    if router.connection is None:
        raise RequestError("console.service.unavailable", f"{router.title} is not reached; try again")
    try:
        async with asyncio.timeout(CLOSING):
            node = await Dispatch(router.connection, router.management).opened()
            try:
                await node.operation(
                    {"operation": "UPDATE", "type": "org.apache.qpid.dispatch.connection", "identity": id, "by": by},
                    {"adminStatus": "deleted"},
                )
            finally:
                node.close()
    except (ControlError, TimeoutError) as error:
        raise RequestError("console.service.failed", f"{router.title} has not closed it: {_reason(error)}") from None


async def _close_at_broker(broker: Node, id: str) -> None:
    """Close a connection to a broker, by an operation that Artemis has too."""
    await broker.managed()
    connection = await broker.reached()
    try:
        async with asyncio.timeout(CLOSING):  # also for a broker that gives no credit
            management = await Artemis(connection).opened()
            try:
                found = await management.invoke("broker", "closeConnectionWithID", id)
            finally:
                management.close()
    except (ControlError, TimeoutError) as error:
        raise RequestError("console.service.failed", f"{broker.title} has not closed it: {_reason(error)}") from None
    if not found:
        raise unknown(f"connection {id[:200]!r}")


def _reason(error: ControlError | TimeoutError) -> str:
    return str(error) or f"no answer within {CLOSING:g} s"
