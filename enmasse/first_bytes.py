"""The protocol of a peer by the first bytes that it sends: for the text about one that has come to the wrong port."""

from __future__ import annotations

_SHOWN = "(`enmasse status` shows it)"
HTTP = (b"HTTP/", b"GET ", b"PUT ", b"POST ", b"HEAD ", b"OPTIONS ", b"DELETE ", b"PRI * HTTP")
STOMP = (b"CONNECT\n", b"CONNECT\r", b"STOMP\n", b"STOMP\r")


def as_text(data: bytes) -> str:
    """Return bytes of a peer as text in quotes: printable ASCII unchanged, others as escapes."""
    return repr(data)[1:]


def another(data: bytes, own: tuple[bytes, ...]) -> str | None:
    """Return the reason to refuse a peer that speaks another protocol than the one that begins as `own`; None if it may
    speak that."""
    other = None if data.startswith(own) else spoken(data)
    return None if other is None else f"the peer speaks {other}: it began with {as_text(data[:8])}"


def spoken(data: bytes) -> str | None:
    """Return the protocol that begins with these bytes, and what tells where a suite serves it: its ports are not known
    here. None: no protocol that a suite knows."""
    if data.startswith(b"\x10") and b"MQ" in data:
        return f"another protocol, MQTT, which has a port of its own {_SHOWN}"
    if data.startswith(HTTP):
        return f"another protocol, HTTP; the console has a port of its own {_SHOWN}"
    if data.startswith(STOMP):
        return "another protocol, STOMP"
    if data.startswith(b"\x16\x03"):
        return "TLS, and this port is without; if there is TLS, it has a port of its own, which `enmasse status` shows"
    if data.startswith(b"\x15\x03"):  # an alert, with which it answers what is no TLS
        return "TLS, and expects it on this port: name the server as mqtts://HOST:PORT or amqps://HOST:PORT"
    if data.startswith(b"AMQP\x00\x00\t\x01"):
        return "another protocol, AMQP 0-9-1; clients need AMQP 1.0"
    if data.startswith(b"AMQP"):
        return f"another protocol, AMQP, which has a port of its own {_SHOWN}"
    return None
