"""A stand-in for any service of the suite, so that the supervisor can be tested in the faults real ones do not have.

It serves /healthz on the port its settings name and obeys a file `<name>.order` beside them:
{"ready": bool, "deaf": bool, "die": status}.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

COUNTS = {"clients": 0}
settings_file = Path(sys.argv[sys.argv.index("--config") + 1])
settings = json.loads(settings_file.read_text())
order_file = settings_file.with_suffix(".order")


def order() -> dict[str, object]:
    try:
        found: dict[str, object] = json.loads(order_file.read_text())
    except FileNotFoundError:
        found = {}
    return found


shown: dict[str, str] = {"amqp": settings["listen"]} if "listen" in settings else {}
if settings["name"].startswith("mqtt_gateway"):
    for each in settings["listeners"]:
        shown[each["kind"] if each["shared"] else "own"] = f"{each['host']}:{each['port']}"


def endpoints() -> dict[str, str]:
    if "entities" in settings and not shown:  # as the agent would have told; read once, a test may delete the file
        ports = json.loads((settings_file.parent / "ragent.json").read_text())["listeners"]
        ports += [body for kind, body in settings["entities"] if kind == "listener"]
        shown.update((entry["name"], f"{entry['host']}:{entry['port']}") for entry in ports)
    return shown


def answer(connection: socket.socket) -> None:
    """One request for the health, and its answer. By hand: the standard library's server takes half of a start."""
    with connection:
        connection.settimeout(10)  # limit: a caller that sends nothing
        request = b""
        while b"\r\n\r\n" not in request:
            if not (data := connection.recv(4096)):
                return
            request += data
        ready = order().get("ready", True)
        detail = "" if ready else "told to say so"
        body = json.dumps({"ready": ready, "detail": detail, "endpoints": endpoints(), "counts": COUNTS})
        status = "200 OK" if ready else "503 Service Unavailable"
        connection.sendall(f"HTTP/1.0 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())


if sys.platform == "linux":
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if str(os.getppid()) != os.environ["ENMASSE_PARENT"]:
    sys.exit(2)
if "die" in order():
    print("fake: told to die", file=sys.stderr, flush=True)
    sys.exit(int(str(order()["die"])))
if order().get("deaf"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
signal.signal(signal.SIGHUP, signal.SIG_IGN)
host, _, port = settings["health"].rpartition(":")
server = socket.create_server((host, int(port)), backlog=20)
server.settimeout(0.02)
while True:
    with suppress(OSError):  # nobody asks, or who asked has gone
        answer(server.accept()[0])
    if "die" in order():
        print("fake: told to die", file=sys.stderr, flush=True)
        sys.exit(int(str(order()["die"])))
