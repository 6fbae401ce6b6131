"""Problems that a console answers with."""

from __future__ import annotations

from typing import Any, NoReturn

from enmasse.cli.common import FAILED, UNREACHABLE, end


class Lost(Exception):
    """A stream cannot be had, or has broken. `id`: of the error; `final`: another attempt would be refused too."""

    def __init__(self, id: str, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.id = id
        self.final = final


class LoginNeeded(Lost):
    """The console does not know the caller, or no longer."""


def refused(status: int, found: Any) -> NoReturn:
    """End the command with the problem that an answer has."""
    id, detail = problem(status, found)
    end(id, detail, UNREACHABLE if status == 503 else FAILED)


def problem(status: int, found: Any) -> tuple[str, str]:
    """Return the id of the problem that an answer has, and what is wrong."""
    said = found if isinstance(found, dict) else {}
    id = str(said.get("type", "")).rpartition("/")[2] or "suite.http.unexpected"
    return id, str(said.get("detail", f"status {status}"))


def lost(error: Lost) -> NoReturn:
    """End the command: a stream cannot be had, or has broken."""
    id, text = error.id, str(error)
    end(id, text, UNREACHABLE)
