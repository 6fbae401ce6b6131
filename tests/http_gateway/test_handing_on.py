"""A gateway that leaves: streams end with the reason, waiting requests are answered, idle connections are closed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from proton.utils import BlockingConnection

from tests.configserv.running import FLAVORS, Configserv
from tests.http_gateway.environment import Running, beside, running
from tests.kit.health import detail, has_ended
from tests.kit.waiting import DEADLINE, wait_for
from tests.mqtt_gateway.environment import ADDRESSES, Router

END = 'event: end\ndata: {"reason": "stopping"'


def test_all_connections_end_at_a_quiet_moment(tmp_path: Path) -> None:
    with running(tmp_path, leave_within=600.0) as gateway, ThreadPoolExecutor() as threads:
        idle = HTTPConnection("127.0.0.1", gateway.port, timeout=DEADLINE)
        idle.request("GET", "/v1/openapi.json")
        idle.getresponse().read()
        waiting = HTTPConnection("127.0.0.1", gateway.port, timeout=DEADLINE)
        waiting.request("POST", "/v1/ask/messages/next?wait=300")
        url = f"http://127.0.0.1:{gateway.port}/v1/news/events"
        versions = ("--http1.1", "--http2-prior-knowledge")
        streams = [
            subprocess.Popen(["curl", "-sSN", version, url], stdout=subprocess.PIPE, text=True) for version in versions
        ]
        for each in streams:
            assert each.stdout is not None and each.stdout.readline() == "retry: 1000\n"
        wait_for(lambda: connections(gateway) == 4, "all are connected")
        ended = [threads.submit(each.communicate) for each in streams]
        os.kill(gateway.pid, signal.SIGTERM)
        wait_for(lambda: detail(gateway.health).startswith("leaving, "), "it leaves")
        with pytest.raises(ConnectionRefusedError):
            gateway.ask("GET", "/v1/openapi.json")
        for output in ended:
            assert END in output.result(DEADLINE)[0]
        assert [each.wait(DEADLINE) for each in streams] == [0, 0]
        answer = waiting.getresponse()
        assert (answer.status, answer.headers["connection"]) == (204, "close")
        assert idle.sock.recv(1) == b""
        wait_for(lambda: has_ended(gateway.pid), "it ends long before 600 s")


def test_a_request_that_waits_while_the_router_is_lost(tmp_path: Path) -> None:
    configserv, router = Configserv(tmp_path), Router(tmp_path)
    configserv.write("flavors.json", FLAVORS)
    configserv.write("addresses.json", ADDRESSES)
    with ExitStack() as ending:
        configserv.start()
        ending.callback(configserv.stop)
        router.start()
        ending.callback(router.kill)
        gateway = ending.enter_context(beside(tmp_path, configserv, router))
        waiting = HTTPConnection("127.0.0.1", gateway.port, timeout=DEADLINE)
        waiting.request("POST", "/v1/ask/messages/next?wait=300")
        with closing(BlockingConnection(f"127.0.0.1:{gateway.clients}", timeout=DEADLINE)) as connection:
            sender = connection.create_sender("ask")
            connection.wait(lambda: sender.link.credit, timeout=DEADLINE)  # the request has its link
        router.kill()
        answer = waiting.getresponse()
        problem = json.loads(answer.read())
        assert (answer.status, answer.headers["retry-after"]) == (503, "1") and problem["condition"], problem


def connections(gateway: Running) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.health}/metrics", timeout=DEADLINE) as answer:
        lines = answer.read().decode().splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("http_connections ")))
