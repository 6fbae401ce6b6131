"""Durable tables of key → value for services, in SQLite or in Redis, behind one interface.

store = make_store(settings.store)           SqliteSettings | RedisSettings, a field of a service's settings
store.start()                                opens it in the background, again and again until it can be used
await store.ready()
async for key, value in store.scan("wills"): …
value = await store.get("wills", key)
await store.write([Change("wills", key, value), Change("wills", other, None)])    # durable, all or nothing

A backup of an SQLite store is made while it is used, in an empty folder `backup` beside its file (`backup`).

The subscription service (sessions, retained messages) and the last-will service stand on it. Imports enmasse.logs.log,
process, backoff, durable; knows no AMQP, no MQTT, and not what it stores. redis is imported only if it is configured.
"""

from enmasse.stores.settings import RedisSettings, SqliteSettings, StoreSettings, make_store
from enmasse.stores.storage_engine import Change
from enmasse.stores.store import Store, StoreError, StoreFull, StoreState

__all__ = [
    "Change",
    "RedisSettings",
    "SqliteSettings",
    "StoreState",
    "Store",
    "StoreError",
    "StoreFull",
    "StoreSettings",
    "make_store",
]
