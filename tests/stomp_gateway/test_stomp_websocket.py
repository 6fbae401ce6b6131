"""STOMP over WebSocket: text and bytes, and @stomp/stompjs in a web page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp
import pytest

from tests.console.browser import chromium
from tests.interop.clients import stompjs
from tests.kit.running import asyncio_test
from tests.stomp_gateway.stomp_environment import Running, running

PROTOCOLS = ("v10.stomp", "v12.stomp")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("stomp")) as found:
        yield found


def test_text_and_bytes(gateway: Running) -> None:
    @asyncio_test
    async def test() -> None:
        url = f"http://127.0.0.1:{gateway.web}/stomp"
        async with aiohttp.ClientSession() as session, session.ws_connect(url, protocols=PROTOCOLS) as socket:
            assert socket.protocol == "v12.stomp"
            await socket.send_str("CONNECT\naccept-version:1.2\nhost:x\n\n\0")
            assert (await socket.receive_str()).startswith("CONNECTED\nversion:1.2\n")
            await socket.send_str("SUBSCRIBE\nid:1\ndestination:ask\nreceipt:r\n\n\0")
            assert await socket.receive_str() == "RECEIPT\nreceipt-id:r\n\n\0"
            for body in ("grüße".encode(), b"\xff\0"):
                data = b"SEND\ndestination:ask\ncontent-length:%d\n\n%b\0" % (len(body), body)
                await socket.send_bytes(data[:20])  # its frames are not those of STOMP
                await socket.send_bytes(data[20:])
                found = (await socket.receive()).data
                found = found.encode() if isinstance(found, str) else found
                assert found.endswith(b"\n\n" + body + b"\0")
            await socket.send_bytes(b"\0")
            assert (await socket.receive_str()).startswith("ERROR\n")
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE

    test()


@pytest.mark.parametrize(
    ("path", "protocol", "origin", "status"),
    [
        ("/other", "v12.stomp", None, 404),
        ("/stomp", "mqtt", None, 400),
        ("/stomp", "v12.stomp", "http://elsewhere.example", 403),
    ],
)
def test_what_is_refused(gateway: Running, path: str, protocol: str, origin: str | None, status: int) -> None:
    @asyncio_test
    async def test() -> None:
        headers = {} if origin is None else {"Origin": origin}
        url = f"http://127.0.0.1:{gateway.web}{path}"
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(url, protocols=(protocol,), headers=headers)
            assert refused.value.status == status
        noted = gateway.metric('enmasse_refusals_total{condition="origin refused"')
        assert (noted > 0) == (status == 403), "refused pages are events, of every gateway"

    test()


SCRIPT = """async (url) => {
  const client = new StompJs.Client({ brokerURL: url, reconnectDelay: 0, heartbeatIncoming: 2000,
    heartbeatOutgoing: 2000 });
  return await new Promise((resolve, reject) => {
    client.onStompError = (frame) => reject(new Error(frame.headers.message));
    client.onWebSocketError = () => reject(new Error('no connection'));
    client.onConnect = () => {
      const got = [];
      client.subscribe('/queue/ask', (message) => {
        got.push(message.headers.n + ' ' + message.body);
        message.ack();
      }, { ack: 'client-individual' });
      for (const n of [1, 2, 3]) {
        client.watchForReceipt('r' + n, () => { if (n === 3) { client.deactivate(); resolve(got); } });
        client.publish({ destination: '/queue/ask', body: 'grüße', headers: { n: String(n), receipt: 'r' + n } });
      }
    };
    client.activate();
  });
}"""


def test_stompjs_in_a_page(gateway: Running, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<!doctype html>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            with chromium() as browser:
                page = browser.new_page()
                page.goto(f"http://127.0.0.1:{server.server_port}/")
                page.add_script_tag(path=str(stompjs()))
                got = page.evaluate(SCRIPT, f"ws://127.0.0.1:{gateway.web}/stomp")
        finally:
            server.shutdown()
    assert sorted(got) == ["1 grüße", "2 grüße", "3 grüße"]
