"""Operations on connections, and on the broker itself (Artemis' ActiveMQServerControl)."""

from __future__ import annotations

import json

from services.broker.management import rows
from services.broker.management.calls import VERSION, CallContext, Operations

broker = Operations()


@broker.add("listConnectionsAsJSON")
def list_connections_json(c: CallContext) -> str:
    """Return all connections."""
    return json.dumps([rows.connection_json(client) for client in c.clients.all.values()])


@broker.add("listSessionsAsJSON", "s")
def list_sessions_json(c: CallContext, connection: str) -> str:
    """Return the sessions of a connection, none if it does not exist."""
    client = c.clients.all.get(connection)
    return json.dumps([rows.session_json(client, session) for session in client.sessions] if client else [])


@broker.add("listProducersInfoAsJSON")
def list_producers_json(c: CallContext) -> str:
    """Return the producers of all connections."""
    return json.dumps(
        [rows.producer_json(client, p) for client in c.clients.all.values() for p in client.producers.values()]
    )


@broker.add("listAllConsumersAsJSON")
def list_all_consumers_json(c: CallContext) -> str:
    """Return the consumers of all connections."""
    return json.dumps(
        [rows.consumer_json(client, k) for client in c.clients.all.values() for k in client.consumers.values()]
    )


@broker.add("closeConnectionWithID", "s")
def close_connection(c: CallContext, id: str) -> bool:
    """Close a connection with amqp:connection:forced; return False if it does not exist."""
    client = c.clients.all.get(id)
    if client is None:
        return False
    client.close("closed by an administrator")
    return True


@broker.add("getName")
def get_name(c: CallContext) -> str:
    """Return the name of the broker."""
    return c.broker.name


@broker.add("getVersion")
def get_version(c: CallContext) -> str:
    """Return the version."""
    return VERSION


@broker.add("getAddressMemoryUsage")
def get_address_memory_usage(c: CallContext) -> int:
    """Return the bytes of payloads in memory."""
    return c.broker.ledger.resident


@broker.add("getQueueCount")
def get_queue_count(c: CallContext) -> int:
    """Return the number of queues."""
    return len(c.broker.catalogue.queues)
