"""The table of log settings."""

from __future__ import annotations

from typing import Any

from enmasse.logs import log
from services.router.management import schema
from services.router.management.entities import Entity, EntityTable, UniqueNames
from services.router.management.requests import Request
from services.router.management.schema import BAD_REQUEST, ManagementError, coerce, read_body

_LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "notice": "info",
    "warning": "warning",
    "error": "error",
    "critical": "error",
    "none": "error",
}
"""Dispatch's levels as this router's."""


class LogTable(EntityTable):
    """Log settings of Dispatch's modules. The entity DEFAULT sets this router's level by `enable`; others are stored
    and shown only."""

    def __init__(self, names: UniqueNames) -> None:
        super().__init__(schema.LOG, names, lambda body: str(body["module"]))
        super().add(None, {"module": "DEFAULT", "enable": f"{log.level()}+", "outputFile": "stderr"})

    def add(self, name: str | None, body: Any) -> Entity:
        """Change the existing entity of a module by the one of the configuration file."""
        wanted = read_body(self.type, name, body)
        present = next((e for e in self.entities.values() if e.body["module"] == wanted["module"]), None)
        entity: Entity = super().add(name, body) if present is None else present
        self._set(entity, {key: value for key, value in wanted.items() if value is not None and key != "name"})
        return entity

    def _set(self, entity: Entity, changed: dict[str, Any]) -> None:
        enable = changed.get("enable")
        if enable is not None and enable != "default":
            words = [word.strip().rstrip("+") for word in str(enable).split(",")]
            unknown = next((word for word in words if word not in _LEVELS), None)
            if unknown is not None:
                raise ManagementError(
                    BAD_REQUEST, f"log '{entity.name}': enable: '{unknown}' is none of {', '.join(_LEVELS)}"
                )
            if entity.body["module"] == "DEFAULT":
                log.set_level(min((_LEVELS[word] for word in words), key=("debug", "info", "warning", "error").index))
        entity.body.update(changed)

    def update(self, request: Request, entity: Entity) -> dict[str, Any]:
        """Change settings of a module. Raises ManagementError for an attribute that is unknown or cannot be changed."""
        body = request.body if isinstance(request.body, dict) else {}
        attributes = {a.name: a for a in self.type.attributes}
        changed: dict[str, Any] = {}
        for key, value in body.items():
            attribute = attributes.get(str(key))
            if attribute is None:
                raise ManagementError(BAD_REQUEST, f"Unknown attribute '{key}' for '{self.type.name}'")
            if not attribute.update:
                if self.getters[attribute.name](entity) != value:
                    raise ManagementError(BAD_REQUEST, f"Cannot update attribute '{key}' in UPDATE")
                continue
            changed[attribute.name] = coerce(attribute, value)
        self._set(entity, changed)
        return self.show(entity)
