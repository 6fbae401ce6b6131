"""A decoded management request."""

from __future__ import annotations

from typing import Any

from enmasse.amqp.messages.message import Sections
from services.router.routing.connection import RouterConnection


class Request:
    """One request. `asking`: connection of the request; None once it is closed. Raises AmqpError, ValueError or
    RecursionError for a message that cannot be decoded."""

    __slots__ = ("asking", "body", "correlation_id", "identity", "name", "operation", "reply_to", "type", "values")

    def __init__(self, asking: RouterConnection | None, payload: bytes) -> None:
        sections = Sections(payload)
        properties = sections.properties
        self.asking = asking
        self.reply_to: str | None = properties.reply_to
        self.correlation_id: Any = properties.correlation_id
        if self.correlation_id is None:
            self.correlation_id = properties.message_id
        self.values: dict[str, Any] = sections.application_properties
        kind = self.values.get("entityType") or self.values.get("type")
        self.type: str | None = str(kind) if kind is not None else None
        operation = self.values.get("operation")
        self.operation: str | None = str(operation).upper().replace("_", "-") if operation is not None else None
        name, identity = self.values.get("name"), self.values.get("identity")
        self.name: str | None = str(name) if name is not None else None
        self.identity: str | None = str(identity) if identity is not None else None
        _, body = sections.body()
        self.body: Any = body[0] if body else None
