"""WebSocket clients that break RFC 6455, and web pages of other origins."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.mqtt import encode
from enmasse.mqtt.packets import V311, Connect
from enmasse.network.web_origins import is_allowed, may_be_any_site
from enmasse.websocket.masking import MaskCheck
from tests.kit.waiting import DEADLINE, wait_for
from tests.kit.websocket import RawWebSocket, frame
from tests.mqtt_gateway.live import Live, live

CONNECT = encode.encode(Connect("c", version=V311), V311, of_client=True)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Live]:
    with live(allowed_origins=("https://example.org",)) as found:
        yield found


def _asked(
    gateway: Live, origin: str | None, behind: bytes = b"", host: str = "localhost", at: str = "127.0.0.1"
) -> socket.socket:
    """A peer that has asked for a WebSocket as a page of this origin; `behind`: sent with the request."""
    peer = socket.create_connection((at, gateway.ports["ws"]))
    peer.settimeout(DEADLINE)
    headers = [
        "GET /mqtt HTTP/1.1", f"Host: {host}:{gateway.ports['ws']}", "Upgrade: websocket", "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: mqtt",
        *([f"Origin: {origin}"] if origin is not None else []),
    ]  # fmt: skip
    peer.sendall("\r\n".join([*headers, "", ""]).encode() + behind)
    return peer


def _status(peer: socket.socket) -> int:
    head = b""
    while b"\r\n\r\n" not in head:
        head += peer.recv(1)
    return int(head.split()[1])


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 101),
        ("http://localhost", 101),
        ("http://LOCALHOST:3000", 101),
        ("https://example.org", 101),
        ("http://example.org", 403),
        ("https://example.org.evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("http://[", 403),
    ],
)
def test_a_page_may_connect_from_the_same_host_and_from_allowed_origins(
    gateway: Live, origin: str | None, status: int
) -> None:
    with _asked(gateway, origin) as peer:
        assert _status(peer) == status


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "[::1]", "LocalHost"])
def test_a_page_of_this_machine_may_connect(gateway: Live, host: str) -> None:
    with _asked(gateway, f"http://{host}:3000", host=host) as peer:
        assert _status(peer) == 101


@pytest.mark.parametrize("host", ["rebound.example", "localhost.rebound.example", "192.0.2.7", "127.0.0.1.example"])
def test_a_page_whose_name_resolves_to_loopback_may_not_connect(gateway: Live, host: str) -> None:
    with _asked(gateway, f"http://{host}:{gateway.ports['ws']}", host=host) as peer:
        assert _status(peer) == 403


def test_a_page_of_an_allowed_origin_may_connect_by_any_name(gateway: Live) -> None:
    with _asked(gateway, "https://example.org", host="example.org") as peer:
        assert _status(peer) == 101


@pytest.mark.parametrize(
    ("local", "wanted"),
    [("127.0.0.1", False), ("::1", False), ("::ffff:127.0.0.1", False), ("10.1.2.3", True), ("fd00::7", True)],
)
def test_any_name_is_good_only_where_other_machines_connect(local: str, wanted: bool) -> None:
    assert is_allowed("https://mqtt.example", "mqtt.example:8084", [], local) is wanted
    assert not is_allowed("https://other.example", "mqtt.example:8084", [], local)


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "wanted"),
    [
        ("http://rebound.example", "rebound.example:8083", [], True),
        ("http://rebound.example:8083", "rebound.example:8083", ["http://other.example"], True),
        ("http://10.1.2.3.example", "10.1.2.3.example", [], True),
        ("http://10.1.2.3", "10.1.2.3:8083", [], False),
        ("http://[fd00::7]:3000", "[fd00::7]:8083", [], False),
        ("http://localhost:3000", "localhost:8083", [], False),
        ("https://mqtt.example", "mqtt.example", [], False),  # TLS ends at a proxy
        ("http://app.example", "app.example:8083", ["http://app.example"], False),
        ("http://app.example", "app.example:8083", ["*"], False),
    ],
)
def test_a_page_without_tls_may_be_of_any_site(origin: str, host: str, allowed: list[str], wanted: bool) -> None:
    assert may_be_any_site(origin, host, allowed) is wanted


@pytest.mark.parametrize(
    ("origin", "host", "wanted"),
    [
        (None, "rebound.example", False),
        ("http://rebound.example", "rebound.example", True),
        ("https://mqtt.example", "mqtt.example", False),
    ],
)
def test_where_other_machines_connect_a_login_learns_that_a_page_may_be_of_any_site(
    origin: str | None, host: str, wanted: bool
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has loopback only")
        at = probe.getsockname()[0]
    with live(host="0.0.0.0") as open_gateway, _asked(open_gateway, origin, host=host, at=at) as peer:
        assert _status(peer) == 101
        peer.sendall(frame(CONNECT))
        wait_for(lambda: open_gateway.backend.requests)
        assert [request.any_site for request in open_gateway.backend.requests] == [wanted]


def test_all_origins_can_be_allowed() -> None:
    assert is_allowed("http://evil.example", "localhost:8083", ["*"], "127.0.0.1")
    assert is_allowed("null", "localhost:8083", ["null"], "127.0.0.1")
    assert not is_allowed("null", "", [], "127.0.0.1")


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("connected", [False, True])
def test_a_frame_that_is_not_masked_ends_the_connection(gateway: Live, connected: bool, behind: bool) -> None:
    data = (frame(CONNECT) if connected else b"") + frame(CONNECT, masked=False)
    with _asked(gateway, None, data if behind else b"") as peer:
        assert _status(peer) == 101
        if not behind:
            peer.sendall(data)
        got = b""
        while more := peer.recv(1000):
            got += more
        assert got.endswith(b"\x88\x02\x03\xea"), "closed with 1002 (RFC 6455, 5.1 and 7.4.1)"


@pytest.mark.parametrize(("path", "subprotocol", "status"), [("/", "amqp10", 404), ("/mqtt", "x", 400)])
def test_an_answer_says_what_may_be_asked_for_and_no_version(
    gateway: Live, path: str, subprotocol: str, status: int
) -> None:
    peer = RawWebSocket(gateway.ports["ws"], f"Sec-WebSocket-Protocol: {subprotocol}", path=path)
    with peer.socket:
        assert (peer.status, "aiohttp" in peer.head) == (status, False)
        assert peer.rest() == b"MQTT over WebSocket is at /mqtt with the subprotocol mqtt\n"
    for request in (b"NOTHING\r\n\r\n", b"GET /mqtt HTTP/1.1\r\nHost: a\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", gateway.ports["ws"])) as other:
            other.sendall(request)
            head = other.recv(65536)
            assert head.startswith(b"HTTP/1.")
            assert b"aiohttp" not in head


@given(st.lists(st.integers(0, 200) | st.sampled_from([125, 126, 65535, 65536])), st.lists(st.integers(1, 3000)))
def test_masks_are_found_however_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    good = b"".join(frame(bytes(size)) for size in sizes)
    for stream, wanted in ((good, True), (good + frame(b"", masked=False), False)):
        check = MaskCheck()
        found = True
        at = 0
        for cut in [*cuts, *[4000] * (len(stream) // 4000 + 1)]:
            found = found and check.masked(stream[at : at + cut])
            at += cut
        assert found is wanted
