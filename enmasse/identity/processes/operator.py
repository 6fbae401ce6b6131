"""The operator: name and secret by which people and their tools authenticate to a suite on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enmasse.identity.processes.credentials import Credential

OPERATOR = "operator"
"""User name at the routers' listener for operators."""
SECRET_FILE = "operator.secret"  # noqa: S105 (its name)
"""The file in the folder `run` of the data folder of a running suite, one line."""
BEARER = "Bearer "
"""Prefix of the secret in the header `Authorization` of requests to the suite's HTTP endpoint (RFC 6750, 2.1)."""


def credential(secret: str) -> Credential:
    """Return the operator's credential, for AMQP."""
    from enmasse.identity.processes.credentials import Credential  # not for commands that need the secret's file only
    from enmasse.identity.processes.roles import Role

    return Credential(OPERATOR, Role.OPERATOR, secret)


def secret_file(data: Path) -> Path:
    """Return the file with the operator's secret of the suite with this data folder."""
    return data / "run" / SECRET_FILE


def read_secret(data: Path) -> str | None:
    """Return the operator's secret of the suite with this data folder; None if this user cannot read it."""
    return read_line(secret_file(data))


def read_line(file: Path) -> str | None:
    """Return the secret in a file; None if the file is missing, empty, or not readable for this process."""
    try:
        return file.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
