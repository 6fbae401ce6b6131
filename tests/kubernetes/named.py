"""A service as if it had a network of its own: `python -m tests.kubernetes.named HOSTS ADDRESS MODULE ARGUMENT ...`.

HOSTS is a JSON file: name → addresses, of which one is taken by chance, as a Service does it. Other names as always.
What listens on all addresses (0.0.0.0) listens on ADDRESS, and its connections come from there.
"""

from __future__ import annotations

import json
import random
import runpy
import socket
import sys
from pathlib import Path
from typing import Any

_look_up, _bind, _connect = socket.getaddrinfo, socket.socket.bind, socket.socket.connect


def main() -> None:
    hosts, own, module, *arguments = sys.argv[1:]

    def look_up(host: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(host, str) and (found := json.loads(Path(hosts).read_text()).get(host)) is not None:
            if not found:
                raise socket.gaierror(socket.EAI_NONAME, f"{host} has no address")
            host = random.choice(found)
        return _look_up(host, *rest, **more)

    def bind(listener: socket.socket, address: Any) -> None:
        everywhere = isinstance(address, tuple) and address[0] == "0.0.0.0"
        _bind(listener, (own, *address[1:]) if everywhere else address)

    def connect(dialling: socket.socket, address: Any) -> None:
        inside = isinstance(address, tuple) and str(address[0]).startswith("127.")
        if inside and dialling.getsockname()[1] == 0:
            _bind(dialling, (own, 0))
        _connect(dialling, address)

    socket.getaddrinfo = look_up
    socket.socket.connect = connect  # type: ignore[method-assign, assignment]  # replaced by the test
    socket.socket.bind = bind  # type: ignore[method-assign, assignment]  # replaced by the test
    sys.modules["uvloop"] = None  # type: ignore[assignment] # it looks names up by itself; without it asyncio serves
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
