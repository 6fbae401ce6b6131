"""The handler of a connection, for users of the engine."""

from __future__ import annotations

from enmasse.amqp.callbacks import Callbacks
from enmasse.amqp.connection import Connection


class Handler(Callbacks[Connection]):
    """Callbacks of a connection: see Callbacks. Override what is needed: everything has a default that behaves."""
