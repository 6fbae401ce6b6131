"""Operations of the resource `broker` (Artemis' ActiveMQServerControl)."""

from __future__ import annotations

import json
import time
from typing import Any

from services.broker.core import errors
from services.broker.core.broker_address import BrokerAddress
from services.broker.core.catalogue import ANYCAST, MULTICAST
from services.broker.core.errors import BrokerError
from services.broker.core.queue import Queue
from services.broker.core.settings import FIELDS, SettingsError, check, from_parameters
from services.broker.core.wildcards import matches
from services.broker.management import rows
from services.broker.management.calls import Operations
from services.broker.management.context import VERSION, Context

broker = Operations()
op = broker.add


def routing_types(given: str) -> frozenset[str]:
    found = frozenset(part.strip().upper() for part in given.split(",") if part.strip())
    if not found or not found <= {ANYCAST, MULTICAST}:
        raise BrokerError(f"AMQ229206: Invalid routing type {given}")
    return found


def routing_type(given: str) -> str:
    found = routing_types(given)
    if len(found) != 1:
        raise BrokerError(f"AMQ229206: Invalid routing type {given}")
    return next(iter(found))


# -- queues ------------------------------------------------------------------------------------------------------------
def _make(c: Context, address: str, name: str, kind: str | None, **attributes: Any) -> Queue:
    return c.broker.catalogue.create_queue(
        address or name,
        name,
        routing_type(kind) if kind else c.broker.catalogue.settings.get(address or name).default_address_routing_type,
        **{"user": c.user, "auto_create_address": True, **attributes},
    )


@op("createQueue", "SSSSBIBB")
def create_queue(
    c: Context,
    address: str,
    kind: str | None,
    name: str,
    filter: str | None,
    durable: bool | None,
    max_consumers: int | None,
    purge: bool | None,
    auto_create_address: bool | None,
) -> str:
    queue = _make(
        c,
        address,
        name,
        kind,
        filter=filter,
        durable=durable is not False,
        max_consumers=max_consumers,
        purge_on_no_consumers=purge,
        auto_create_address=bool(auto_create_address),
    )
    return describe(queue)


def describe(queue: Queue) -> str:
    """The text createQueue returns."""
    return (
        f"QueueImpl[name={queue.name}, address={queue.address.name}, routingType={queue.routing_type}, "
        f"durable={rows.text(queue.durable)}]"
    )


@op("createQueue deployQueue", "ss")
def create_queue_2(c: Context, address: str, name: str) -> None:
    _make(c, address, name, None, durable=True)


@op("createQueue", "sss")
def create_queue_3(c: Context, address: str, name: str, kind: str) -> None:
    _make(c, address, name, kind, durable=True)


@op("createQueue", "ssb")
def create_queue_durable(c: Context, address: str, name: str, durable: bool) -> None:
    _make(c, address, name, None, durable=durable)


@op("createQueue", "ssbs")
def create_queue_durable_kind(c: Context, address: str, name: str, durable: bool, kind: str) -> None:
    _make(c, address, name, kind, durable=durable)


@op("createQueue deployQueue", "ssSb")
def create_queue_filter(c: Context, address: str, name: str, filter: str | None, durable: bool) -> None:
    _make(c, address, name, None, filter=filter, durable=durable)


@op("deployQueue", "ssS")
def deploy_queue(c: Context, address: str, name: str, filter: str | None) -> None:
    _make(c, address, name, None, filter=filter, durable=True)


@op("createQueue", "ssSbs")
def create_queue_filter_kind(c: Context, address: str, name: str, filter: str | None, durable: bool, kind: str) -> None:
    _make(c, address, name, kind, filter=filter, durable=durable)


# Keys of Artemis' QueueConfiguration that this broker acts on, with the attribute each sets.
_CONFIGURATION = {
    "filter-string": "filter",
    "durable": "durable",
    "user": "user",
    "max-consumers": "max_consumers",
    "exclusive": "exclusive",
    "purge-on-no-consumers": "purge_on_no_consumers",
    "auto-create-address": "auto_create_address",
    "auto-created": "auto_created",
    "auto-delete": "auto_delete",
    "temporary": "temporary",
}
# Those it does not act on: only the value that changes nothing is taken.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "id": (),
    "group-rebalance": (False,),
    "group-rebalance-pause-dispatch": (False,),
    "group-buckets": (-1,),
    "group-first-key": (None, ""),
    "last-value": (False,),
    "last-value-key": (None, ""),
    "non-destructive": (False,),
    "enabled": (True,),
    "consumers-before-dispatch": (0,),
    "delay-before-dispatch": (-1,),
    "consumer-priority": (0, -1),
    "auto-delete-delay": (0, -1),
    "auto-delete-message-count": (0, -1),
    "ring-size": (-1,),
    "configuration-managed": (False,),
    "internal": (False,),
    "transient": (False,),
}
_TYPES: dict[str, type] = {"filter-string": str, "user": str, "max-consumers": int}


def _configuration(given: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON text of a QueueConfiguration: name, address and routing-type as they are, the rest as attributes."""
    try:
        value = json.loads(given)
    except ValueError as error:
        raise BrokerError(f"the queue configuration is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BrokerError("the queue configuration is not a JSON object")
    attributes: dict[str, Any] = {}
    for key, item in value.items():
        if key in ("name", "address", "routing-type"):
            continue
        if key in _NEUTRAL:
            if _NEUTRAL[key] and item not in _NEUTRAL[key]:
                raise BrokerError(f"queue configuration {key}: {item!r} is not supported, leave it out")
            continue
        if key not in _CONFIGURATION:
            raise BrokerError(f"queue configuration: {key!r} is not known")
        if item is None:
            continue
        kind = _TYPES.get(key, bool)
        if isinstance(item, str) and kind is not str:  # Artemis writes and reads these as strings too
            item = item == "true" if kind is bool else int(item) if item.lstrip("-").isdigit() else item
        if not isinstance(item, kind) or (kind is int and isinstance(item, bool)):
            raise BrokerError(f"queue configuration {key}: {item!r} is not a {kind.__name__}")
        attributes[_CONFIGURATION[key]] = item
    for key in ("name", "address", "routing-type"):
        if key in value and not isinstance(value[key], str):
            raise BrokerError(f"queue configuration {key}: a string is needed, not {value[key]!r}")
    if not value.get("name"):
        raise BrokerError("queue configuration: the name is missing")
    return value, attributes


@op("createQueue", "s")
def create_queue_json(c: Context, configuration: str) -> str:
    return create_queue_json_ignore(c, configuration, False)


@op("createQueue", "sb")
def create_queue_json_ignore(c: Context, configuration: str, ignore_if_exists: bool) -> str:
    value, attributes = _configuration(configuration)
    existing = c.broker.catalogue.queues.get(value["name"])
    if existing is None:
        existing = _make(
            c, value.get("address") or value["name"], value["name"], value.get("routing-type"),
            **{"durable": True, **attributes},
        )  # fmt: skip
    elif not ignore_if_exists:
        raise errors.queue_exists(value["name"], existing.address.name)
    return describe(existing)


@op("updateQueue", "s")
def update_queue(c: Context, configuration: str) -> str:
    value, attributes = _configuration(configuration)
    queue = c.broker.catalogue.queues.get(value["name"])
    if queue is None:
        raise errors.no_queue(value["name"])
    fixed = {"durable": queue.durable, "temporary": queue.temporary}
    for key, current in fixed.items():
        if attributes.get(key, current) != current:
            raise BrokerError(f"queue {queue.name}: {key} cannot be changed")
    c.broker.catalogue.update_queue(
        queue, {k: v for k, v in attributes.items() if k not in (*fixed, "auto_create_address")}
    )
    return describe(queue)


@op("destroyQueue", "s")
def destroy_queue(c: Context, name: str) -> None:
    c.broker.catalogue.destroy_queue(name)


@op("destroyQueue", "sb")
def destroy_queue_2(c: Context, name: str, remove_consumers: bool) -> None:
    c.broker.catalogue.destroy_queue(name, remove_consumers=remove_consumers)


@op("destroyQueue", "sbb")
def destroy_queue_3(c: Context, name: str, remove_consumers: bool, auto_delete_address: bool) -> None:
    c.broker.catalogue.destroy_queue(name, remove_consumers=remove_consumers, auto_delete_address=auto_delete_address)


# -- addresses ---------------------------------------------------------------------------------------------------------
@op("createAddress", "ss")
def create_address(c: Context, name: str, kinds: str) -> str:
    address = c.broker.catalogue.create_address(name, routing_types(kinds))
    return f"Address [name={name}, routingTypes={{{', '.join(sorted(address.routing_types))}}}, autoCreated=false]"


@op("updateAddress", "ss")
def update_address(c: Context, name: str, kinds: str) -> str:
    address = c.broker.catalogue.update_address(name, routing_types(kinds))
    return f"Address [name={name}, routingTypes={{{', '.join(sorted(address.routing_types))}}}, autoCreated=false]"


@op("deleteAddress", "s")
def delete_address(c: Context, name: str) -> None:
    c.broker.catalogue.delete_address(name)


@op("deleteAddress", "sb")
def delete_address_2(c: Context, name: str, force: bool) -> None:
    c.broker.catalogue.delete_address(name, force=force)


@op("getQueueNames")
def get_queue_names(c: Context) -> list[str]:
    return list(c.broker.catalogue.queues)


@op("getQueueNames", "s")
def get_queue_names_of_kind(c: Context, kind: str) -> list[str]:
    wanted = routing_type(kind)
    return [queue.name for queue in c.broker.catalogue.queues.values() if queue.routing_type == wanted]


@op("getAddressNames")
def get_address_names(c: Context) -> list[str]:
    return list(c.broker.catalogue.addresses)


@op("listQueues", "Sii")
def list_queues(c: Context, options: str | None, page: int, page_size: int) -> str:
    return rows.list_rows(c.broker.catalogue.queues.values(), rows.queue_row, options, page, page_size)


@op("listAddresses", "Sii")
def list_addresses(c: Context, options: str | None, page: int, page_size: int) -> str:
    def row(address: BrokerAddress) -> dict[str, str]:
        return rows.address_row(
            address, c.broker.catalogue.queues_of(address).values(), c.broker.admission.full_policy(address)
        )

    return rows.list_rows(c.broker.catalogue.addresses.values(), row, options, page, page_size)


# -- settings ----------------------------------------------------------------------------------------------------------
@op("getAddressSettingsAsJSON", "s")
def get_address_settings(c: Context, match: str) -> str:
    merged = c.broker.catalogue.settings.merged(match)
    return json.dumps({key: value for key, value in merged.items() if value is not None})


_SETTING_KINDS = {"string": "S", "integer": "I", "real": "D", "boolean": "B"}


@op("addAddressSettings", "s" + "".join(_SETTING_KINDS[field.type] for field in FIELDS))
def add_address_settings(c: Context, match: str, *values: Any) -> None:
    try:
        c.broker.catalogue.put_settings(match, from_parameters(list(values)))
    except SettingsError as error:
        raise BrokerError(str(error)) from None


@op("addAddressSettings", "ss")
def add_address_settings_json(c: Context, match: str, given: str) -> str:
    try:
        value = json.loads(given)
        if not isinstance(value, dict):
            raise BrokerError("the address settings are not a JSON object")
        c.broker.catalogue.put_settings(match, check(value))
    except ValueError as error:
        raise BrokerError(f"address settings: {error}") from None
    return json.dumps(value)


@op("removeAddressSettings", "s")
def remove_address_settings(c: Context, match: str) -> None:
    c.broker.catalogue.remove_settings(match)


# -- connections -------------------------------------------------------------------------------------------------------
@op("listConnectionsAsJSON")
def list_connections_json(c: Context) -> str:
    return json.dumps([rows.connection_json(client) for client in c.clients.all.values()])


@op("listSessionsAsJSON", "s")
def list_sessions_json(c: Context, connection: str) -> str:
    client = c.clients.all.get(connection)
    return json.dumps([rows.session_json(client, session) for session in client.sessions] if client else [])


@op("listAllSessionsAsJSON")
def list_all_sessions_json(c: Context) -> str:
    return json.dumps([rows.session_json(client, s) for client in c.clients.all.values() for s in client.sessions])


@op("listProducersInfoAsJSON")
def list_producers_json(c: Context) -> str:
    return json.dumps(
        [rows.producer_json(client, p) for client in c.clients.all.values() for p in client.producers.values()]
    )


@op("listAllConsumersAsJSON")
def list_all_consumers_json(c: Context) -> str:
    return json.dumps(
        [rows.consumer_json(client, k) for client in c.clients.all.values() for k in client.consumers.values()]
    )


@op("listConsumersAsJSON", "s")
def list_consumers_json(c: Context, connection: str) -> str:
    client = c.clients.all.get(connection)
    return json.dumps([rows.consumer_json(client, k) for k in client.consumers.values()] if client else [])


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {key: rows.text(value) for key, value in values.items()}


@op("listConnections", "Sii")
def list_connections(c: Context, options: str | None, page: int, page_size: int) -> str:
    found = [_texts(rows.connection_json(client)) for client in c.clients.all.values()]
    return rows.list_rows(found, dict, options, page, page_size)


@op("listSessions", "Sii")
def list_sessions(c: Context, options: str | None, page: int, page_size: int) -> str:
    found = [_texts(rows.session_json(client, s)) for client in c.clients.all.values() for s in client.sessions]
    return rows.list_rows(found, dict, options, page, page_size)


@op("listConsumers", "Sii")
def list_consumers(c: Context, options: str | None, page: int, page_size: int) -> str:
    clients = c.clients.all.values()
    found = [_texts(rows.consumer_json(client, k)) for client in clients for k in client.consumers.values()]
    return rows.list_rows(found, dict, options, page, page_size)


@op("listProducers", "Sii")
def list_producers(c: Context, options: str | None, page: int, page_size: int) -> str:
    clients = c.clients.all.values()
    found = [_texts(rows.producer_json(client, p)) for client in clients for p in client.producers.values()]
    return rows.list_rows(found, dict, options, page, page_size)


@op("listConnectionIDs")
def list_connection_ids(c: Context) -> list[str]:
    return list(c.clients.all)


@op("listRemoteAddresses")
def list_remote_addresses(c: Context) -> list[str]:
    return [client.remote for client in c.clients.all.values()]


@op("closeConnectionWithID", "s")
def close_connection(c: Context, id: str) -> bool:
    client = c.clients.all.get(id)
    if client is None:
        return False
    client.close()
    return True


@op("closeConnectionsForAddress", "s")
def close_connections_for_address(c: Context, address: str) -> bool:
    found = [client for client in c.clients.all.values() if client.remote.rpartition(":")[0] == address]
    for client in found:
        client.close()
    return bool(found)


@op("closeConnectionsForUser", "s")
def close_connections_for_user(c: Context, user: str) -> bool:
    found = [client for client in c.clients.all.values() if client.user == user]
    for client in found:
        client.close()
    return bool(found)


@op("closeConsumerConnectionsForAddress", "s")
def close_consumer_connections(c: Context, match: str) -> bool:
    found = [
        client
        for client in c.clients.all.values()
        if any(matches(match, consumer.address) for consumer in client.consumers.values())
    ]
    for client in found:
        client.close()
    return bool(found)


@op("closeSessionWithID", "ss")
def close_session(c: Context, connection: str, session: str) -> bool:
    client = c.clients.all.get(connection)
    return client is not None and client.close_session(session)


@op("closeConsumerWithID", "ss")
def close_consumer(c: Context, session: str, id: str) -> bool:
    for client in c.clients.all.values():
        consumer = client.consumers.get(id)
        if consumer is not None and consumer.session == session:
            consumer.close()
            return True
    return False


# -- the broker itself -------------------------------------------------------------------------------------------------
@op("getGlobalMaxSize")
def get_global_max_size(c: Context) -> int:
    return c.broker.ledger.global_max_size


@op("getName")
def get_name(c: Context) -> str:
    return c.broker.name


@op("getVersion")
def get_version(c: Context) -> str:
    return VERSION


@op("getNodeID")
def get_node_id(c: Context) -> str:
    return c.broker.name


@op("isStarted isActive isPersistenceEnabled")
def is_started(c: Context) -> bool:
    return True


@op("isPaused isBackup isClustered isSecurityEnabled isReplicaSync")
def is_not(c: Context) -> bool:
    return False


@op("getUptimeMillis")
def get_uptime_millis(c: Context) -> int:
    return int((time.monotonic() - c.started) * 1000)


@op("getUptime")
def get_uptime(c: Context) -> str:
    return f"{time.monotonic() - c.started:.3f} seconds"


@op("getConnectionCount")
def get_connection_count(c: Context) -> int:
    return len(c.clients.all)


@op("getTotalConnectionCount")
def get_total_connection_count(c: Context) -> int:
    return c.clients.total


@op("getTotalConsumerCount")
def get_total_consumer_count(c: Context) -> int:
    return sum(len(queue.consumers) for queue in c.broker.catalogue.queues.values())


@op("getTotalMessageCount")
def get_total_message_count(c: Context) -> int:
    return sum(queue.count for queue in c.broker.catalogue.queues.values())


@op("getTotalMessagesAdded")
def get_total_messages_added(c: Context) -> int:
    return sum(queue.added for queue in c.broker.catalogue.queues.values())


@op("getTotalMessagesAcknowledged")
def get_total_messages_acknowledged(c: Context) -> int:
    return sum(queue.acknowledged for queue in c.broker.catalogue.queues.values())


@op("getAddressCount")
def get_address_count(c: Context) -> int:
    return len(c.broker.catalogue.addresses)


@op("getQueueCount")
def get_queue_count(c: Context) -> int:
    return len(c.broker.catalogue.queues)


@op("getAddressMemoryUsage")
def get_address_memory_usage(c: Context) -> int:
    return c.broker.ledger.resident


@op("getAddressMemoryUsagePercentage")
def get_address_memory_usage_percentage(c: Context) -> int:
    return (
        100 * c.broker.ledger.resident // c.broker.ledger.global_max_size if c.broker.ledger.global_max_size > 0 else 0
    )


@op("getDiskStoreUsage")
def get_disk_store_usage(c: Context) -> int:
    return c.broker.store.disk_bytes if c.broker.store is not None else 0


@op("getConnectorServices getDivertNames getBridgeNames")
def get_none(c: Context) -> list[str]:
    return []
