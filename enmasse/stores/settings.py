"""The settings of a store, and the store they describe (docs/contracts.md, "Stores")."""

from __future__ import annotations

from typing import Annotated

import msgspec

from enmasse.process import runner
from enmasse.stores.store import Store


class SqliteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="sqlite", tag_field="kind"):
    """`path`: the file. It and its folder are made if they are not there."""

    path: Annotated[str, msgspec.Meta(min_length=1)]


class RedisSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="redis", tag_field="kind"):
    """`url`: redis://[[user]:password@]host[:port][/database], rediss:// for TLS, unix://path.

    `prefix`: of all its keys; each suite that shares a server has its own. `password_file`: a file with the password,
    instead of one in the URL; read again with each connection.
    """

    url: Annotated[str, msgspec.Meta(pattern=r"^(rediss?|unix)://.+")]
    prefix: Annotated[str, msgspec.Meta(min_length=1)] = "enmasse"
    password_file: str = ""


StoreSettings = SqliteSettings | RedisSettings


def make_store(settings: StoreSettings) -> Store:
    """Return the store; `start` it.

    Raises process.Fatal if the URL is invalid, or the package `redis` is missing.
    """
    if isinstance(settings, SqliteSettings):
        from enmasse.stores.sqlite import SqliteEngine

        return Store(SqliteEngine(settings.path))
    try:
        from enmasse.stores.redis import RedisEngine
    except ImportError:
        raise runner.Fatal(
            "service.redis.missing",
            "setting 'store': a store in Redis needs the package `redis`; "
            "install it with: pip install '.[redis]' in the checkout",
        ) from None
    try:
        return Store(RedisEngine(settings.url, settings.prefix, settings.password_file))
    except ValueError as error:
        raise runner.Fatal("service.setting.invalid", f"setting 'store': {error}") from None
