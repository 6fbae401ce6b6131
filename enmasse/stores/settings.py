"""The settings of a store, and the store they describe (docs/contracts.md, "Stores")."""

from __future__ import annotations

from typing import Annotated

import msgspec

from enmasse.stores.store import Store


class SqliteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="sqlite", tag_field="kind"):
    """`path`: the file. It and its folder are made if they are not there."""

    path: Annotated[str, msgspec.Meta(min_length=1)]


class RedisSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="redis", tag_field="kind"):
    """`url`: redis://[[user]:password@]host[:port][/database], rediss:// for TLS, unix://path.

    `prefix`: of all its keys; each suite that shares a server has its own.
    """

    url: Annotated[str, msgspec.Meta(pattern=r"^(rediss?|unix)://.+")]
    prefix: Annotated[str, msgspec.Meta(min_length=1)] = "enmasse"


StoreSettings = SqliteSettings | RedisSettings


def make_store(settings: StoreSettings) -> Store:
    """The store; `start` it. Raises ValueError if the url cannot be understood."""
    if isinstance(settings, SqliteSettings):
        from enmasse.stores.sqlite import SqliteEngine

        return Store(SqliteEngine(settings.path))
    from enmasse.stores.redis import RedisEngine

    return Store(RedisEngine(settings.url, settings.prefix))
