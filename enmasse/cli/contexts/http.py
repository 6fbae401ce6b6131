"""The running suite over HTTP: small blocking requests to the supervisor, which answers also without the console, and
to the console."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enmasse.cli.common import ADMIN_PORT
from enmasse.cli.contexts import contexts
from enmasse.http.client import Client
from enmasse.http.http11 import MAX_ANSWER, NONE
from enmasse.identity.processes.operator import BEARER, credential, read_secret, secret_file
from enmasse.text import offset_option

if TYPE_CHECKING:
    from enmasse.identity.processes.credentials import Credential

ANSWER_SECONDS = 10.0
"""For an answer of the suite; a loaded machine is slow."""
HINT_SECONDS = 1.0
"""For an answer that a command does without: a supervisor that hangs holds up no messages."""


class NotRunning(Exception):
    """No suite answers at this port offset; the text has the reason."""


class NothingListens(NotRunning):
    """The suite is not there: nothing listens on its port."""


class OtherSuite(NotRunning):
    """A suite with another port offset answers: one of its ports is that of the supervisor at this offset."""


class SecretUnreadable(NotRunning):
    """A suite runs, but this user cannot read the operator's secret."""


def request(
    offset: int,
    method: str,
    path: str,
    body: Any = None,
    timeout: float = ANSWER_SECONDS,
    port: int = ADMIN_PORT,
    headers: Mapping[str, str] = NONE,
) -> tuple[int, Any]:
    """(HTTP status, decoded JSON), asked with the operator's secret. `port`: HTTP_PORT is the console's. Raises
    NotRunning."""
    secret = operator_secret(offset, timeout)
    return _exchange(offset, method, path, body, timeout, {"Authorization": BEARER + secret, **headers}, port)


def operator_secret(offset: int, timeout: float = ANSWER_SECONDS) -> str:
    """Return the operator's secret of the running suite, which is in its data folder. Raises NotRunning."""
    return _secret(suite_info(offset, timeout))


def operator_credential(offset: int, timeout: float = ANSWER_SECONDS) -> Credential | None:
    """Return the operator's credential for the router of the running suite; None if no suite answers. Raises
    SecretUnreadable."""
    try:
        info = suite_info(offset, timeout)
    except NotRunning:
        return None
    return credential(_secret(info))


def _secret(info: dict[str, Any]) -> str:
    folder = Path(info["data_dir"])
    secret = read_secret(folder)
    if secret is None:
        raise SecretUnreadable(
            f"EnMasse is running, but this user cannot read {secret_file(folder)}: run the command as the user of "
            "`enmasse up`"
        )
    return secret


def _exchange(
    offset: int,
    method: str,
    path: str,
    body: Any,
    timeout: float,
    headers: Mapping[str, str] = NONE,
    port: int = ADMIN_PORT,
) -> tuple[int, Any]:
    """(HTTP status, decoded JSON; None: no body). Raises NotRunning."""
    contexts.refuse("it asks the supervisor")
    port += offset
    headers = {**headers, "Connection": "close"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        answer = Client("127.0.0.1", port, timeout=timeout).request(
            method, path, headers, None if body is None else json.dumps(body).encode(), most=MAX_ANSWER
        )
        return answer.status, json.loads(answer.body) if answer.body else None
    except ConnectionRefusedError:
        raise NothingListens(
            f"EnMasse is not running: nothing listens on 127.0.0.1:{port}. "
            f"`enmasse up{offset_option(offset)}` starts it; --port-offset selects another suite."
        ) from None
    except TimeoutError:
        who = "EnMasse" if port == ADMIN_PORT + offset else "the console"
        raise NotRunning(
            f"{who} does not answer on 127.0.0.1:{port} within {timeout:g} s; clients may still be served. `enmasse "
            f"status{offset_option(offset)}` shows what is wrong."
        ) from None
    except (OSError, ValueError) as error:
        raise NotRunning(f"EnMasse is not running: 127.0.0.1:{port} gives no valid answer ({error})") from None


def get_status(offset: int, timeout: float = ANSWER_SECONDS, *, brief: bool = False) -> dict[str, Any]:
    """Return the status JSON; `brief`: only schema, ready and config of it. Raises NotRunning."""
    _, status = request(offset, "GET", "/api/ready" if brief else "/api/status", timeout=timeout)
    if not isinstance(status, dict) or status.get("schema") != 1:
        raise NotRunning(f"EnMasse is not running: something else answers on 127.0.0.1:{ADMIN_PORT + offset}")
    return status


def suite_info(offset: int, timeout: float = ANSWER_SECONDS) -> dict[str, Any]:
    """{"pid", "config_dir", "data_dir", "ports", …} of the running suite. Raises NotRunning."""
    port = ADMIN_PORT + offset
    _, info = _exchange(offset, "GET", "/api/suite", None, timeout)
    if not isinstance(info, dict) or not {"config_dir", "data_dir"} <= info.keys():
        raise NotRunning(f"EnMasse is not running: something else answers on 127.0.0.1:{port}")
    its_port = info.get("ports", {}).get("admin", port)
    if its_port != port:  # its console listens here, and passes this path on
        its_offset = its_port - ADMIN_PORT
        raise OtherSuite(
            f"EnMasse is not running with --port-offset {offset}: 127.0.0.1:{port} is a port of the suite with "
            f"--port-offset {its_offset}, which that option selects."
        )
    return info


@functools.cache
def is_other_suite(offset: int) -> bool:
    """Return True if a suite with another port offset answers at this one. A command asks once."""
    try:
        suite_info(offset, HINT_SECONDS)
    except OtherSuite:
        return True
    except NotRunning:
        pass
    return False


def public_ports(offset: int) -> list[int] | None:
    """Return the ports of the running suite that clients may use; None if none runs."""
    try:
        return list(suite_info(offset).get("ports", {}).values())
    except NotRunning:
        return None
