"""`enmasse send` and `receive` against a peer made of Proton that misbehaves as told; parsing and printing beside
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import proton
import pytest

from enmasse.amqp.codec.errors import NOT_FOUND, AmqpError, LoginError
from enmasse.amqp.codec.types import Array, Described, Symbol, UInt
from enmasse.amqp.messages.message import AmqpSequence, AmqpValue, Message
from enmasse.cli.commands.messaging.bench import percentiles
from enmasse.cli.common import UNREACHABLE
from enmasse.cli.contexts.first_connection import opened
from enmasse.cli.contexts.http import is_other_suite
from enmasse.cli.contexts.remote import RemoteAddress, at_suite, parse
from enmasse.cli.messages.amqp import run
from enmasse.cli.output.show import as_json, as_text, properties_from
from enmasse.control import ControlConnection, ControlLink, ControlReceiver, ControlSender, Delivery, listen
from tests.cli.mqtt_peer import Broker, mqtt_peer
from tests.cli.running import ENMASSE, enmasse, free_offset, wait_for
from tests.kit.running import Listening, server
from tests.kit.waiting import DEADLINE

PASSES = 5
"""Seconds of a time limit that is reached: what has to happen before takes milliseconds, or a second under load."""


@contextmanager
def peer(attached: Callable[[ControlLink], None], port: int = 0) -> Iterator[int]:
    """A Proton server in a thread, on a free port unless one is given; `attached` is called with each link."""

    async def serve(listening: Listening) -> None:
        def accepted(connection: ControlConnection) -> None:
            connection.on_attach = attached

        listener = await listen("127.0.0.1", port, accepted, container="peer")
        await listening(listener.port)
        await listener.close()

    with server(serve) as found:
        yield found


def taking(act: Callable[[Delivery, int], None], credit: int = 10) -> Callable[[ControlLink], None]:
    """A peer that gives credit and does `act(delivery, number)` with each message."""

    def attached(link: ControlLink) -> None:
        assert isinstance(link, ControlReceiver)
        count = 0

        def on_message(delivery: Delivery) -> None:
            nonlocal count
            count += 1
            act(delivery, count)

        link.on_message = on_message
        link.accept()
        link.window = credit
        link.grant(credit)

    return attached


def giving(*bodies: Any, outcomes: list[str] | None = None) -> Callable[[ControlLink], None]:
    """A peer that has these messages to give, and notes what becomes of them."""

    def attached(link: ControlLink) -> None:
        assert isinstance(link, ControlSender)
        left = list(bodies)

        def on_credit() -> None:
            while left and link.credit > 0:
                message = left.pop(0)
                data = message if isinstance(message, bytes) else proton.Message(body=message)
                link.send(data, None if outcomes is None else lambda outcome: outcomes.append(repr(outcome)))

        link.on_credit = on_credit
        link.accept()

    return attached


def send(
    port: int, *arguments: str, input: str | None = None, seconds: float = DEADLINE
) -> tuple[int, dict[str, Any], str]:
    """(exit status, counts, stderr). `seconds`: the time limit, of which nothing is lost where it is not reached."""
    done = enmasse("send", "-a", f"127.0.0.1:{port}/q", "--json", "--timeout", f"{seconds}", *arguments, input=input)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_accepted() -> None:
    with peer(taking(lambda delivery, _: delivery.accept())) as port:
        status, told, _ = send(port, "body", "--count", "1200")
    assert status == 0 and (told["sent"], told["accepted"], told["unknown"]) == (1200, 1200, 0)


@contextmanager
def suite_with_port(name: str, port: int, offset: int) -> Iterator[threading.Event]:
    """HTTP of a suite that has this public port; the event is set when a command has asked for it."""
    asked = threading.Event()

    class Suite(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"config_dir": "/", "data_dir": "/", "ports": {name: port}}).encode())
            asked.set()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 8079 + offset), Suite)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()


def test_a_suite_with_another_port_offset_is_not_taken_for_the_one_that_is_meant() -> None:
    """Its console listens on the port of the supervisor one offset further, and passes requests on."""
    offset = free_offset()
    with suite_with_port("admin", 8079 + offset - 1, offset), stopped_process(5672 + offset) as listener:
        down = enmasse("down", "--port-offset", offset)
        sent = enmasse("send", "q", "x", "--port-offset", offset)
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert (down.returncode, sent.returncode) == (4, 4)
    assert f"EnMasse is not running with --port-offset {offset}: " in down.stderr
    assert f"of the suite with --port-offset {offset - 1}" in down.stderr
    assert f"Is `enmasse up --port-offset {offset}` running?" in sent.stderr


def test_a_supervisor_that_hangs_is_asked_once() -> None:
    """Messages do not need it: each further connection of the command would wait for it again."""
    offset = free_offset()
    with stopped_process(8079 + offset) as listener:
        assert [is_other_suite(offset) for _ in range(2)] == [False, False]
        listener.settimeout(0)
        listener.accept()[0].close()
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_login_that_cannot_be_checked_at_the_moment_is_tried_again() -> None:
    """As right after `enmasse user add` of the first user."""
    offset = free_offset()
    outcomes = iter((LoginError("try again", 4), LoginError("try again", 4), None))

    async def attempt() -> str:
        if (error := next(outcomes)) is not None:
            raise error
        return "connected"

    with suite_with_port("amqp", 5672 + offset, offset):
        assert asyncio.run(opened(attempt, 5672 + offset, offset)) == "connected"


@contextmanager
def stopped_process(port: int) -> Iterator[socket.socket]:
    """The port of a process that is stopped: the system takes connections, nothing reads them."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(DEADLINE)
        yield listener


def end_stopped(listener: socket.socket) -> None:
    """End the stopped process when a command has connected to it, and sent something: the system resets."""
    connection, _ = listener.accept()
    connection.settimeout(DEADLINE)
    assert connection.recv(1, socket.MSG_PEEK)
    listener.close()
    connection.close()


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("command", ["send", "publish"])
def test_a_command_waits_while_the_suite_restarts_what_it_connects_to(command: str, stopped: bool) -> None:
    offset = free_offset()
    name, base = ("amqp", 5672) if command == "send" else ("mqtt", 1883)
    with contextlib.ExitStack() as stack:
        asked = stack.enter_context(suite_with_port(name, base + offset, offset))
        listener = stack.enter_context(stopped_process(base + offset)) if stopped else None
        arguments = [ENMASSE, command, "q", "x", "--port-offset", str(offset)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            if listener is not None:
                end_stopped(listener)
            assert asked.wait(DEADLINE)
            taken = taking(lambda delivery, _: delivery.accept())
            with peer(taken, base + offset) if name == "amqp" else mqtt_peer(Broker(), base + offset):
                output, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, output


def test_a_port_of_the_suite_that_stays_closed_is_reported_as_such() -> None:
    offset = free_offset()
    with suite_with_port("amqp", 5672 + offset, offset):
        done = enmasse("send", "q", "x", "--port-offset", offset)
    assert done.returncode == 4
    assert f"EnMasse runs, but this port stayed closed for 5 s: `enmasse status --port-offset {offset}`" in done.stderr


def test_every_outcome_is_counted() -> None:
    def act(delivery: Delivery, number: int) -> None:
        if number == 2:
            delivery.reject("amqp:precondition-failed", "too odd")
        elif number == 3:
            delivery.release()
        else:
            delivery.accept()

    with peer(taking(act)) as port:
        status, told, err = send(port, "-m", "4")
    assert status == 1
    assert told == {
        "address": "q", "sent": 4, "accepted": 2, "rejected": 1, "released": 1, "modified": 0, "unknown": 0,
        "error": "amqp:precondition-failed: too odd",
    }  # fmt: skip
    assert "rejected: amqp:precondition-failed: too odd" in err
    assert re.search(r"^message-ids: [0-9a-f]{24}-2, [0-9a-f]{24}-3$", err, re.MULTILINE)


def test_a_sender_is_told_that_it_may_send_released_messages_again() -> None:
    with peer(taking(lambda delivery, _: delivery.release())) as port:
        status, told, err = send(port, "-m", "2")
    assert (status, told["released"]) == (1, 2)
    assert "2 released: not now, nothing took them. Try again" in err


def test_no_answer() -> None:
    with peer(taking(lambda delivery, number: delivery.accept() if number == 1 else None)) as port:
        status, told, err = send(port, "-m", "3", seconds=PASSES)
    assert status == 3 and (told["sent"], told["accepted"], told["unknown"]) == (3, 1, 2)
    assert f"2 messages sent, and no answer within {PASSES} s" in err


def test_credit_that_ends() -> None:
    def act(delivery: Delivery, number: int) -> None:
        delivery.link.window = 0  # no more
        delivery.accept()

    with peer(taking(act, credit=2)) as port:
        status, told, err = send(port, "-m", "5", seconds=PASSES)
    assert status == 3 and (told["sent"], told["accepted"]) == (2, 2)
    assert f"no credit within {PASSES} s" in err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ssl.SSLCertVerificationError("self-signed"), "with --ca FILE"),
        (ssl.SSLError("wrong version number"), "AMQP without TLS is amqp://"),
        (
            ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"),
            ": Connection refused. Is a server running there",
        ),
        (
            OSError(
                "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 111] Connect call …"
            ),
            ": Connection refused. Is a server running there",
        ),
        (ConnectionResetError(), "the server closed the connection. Is this an AMQPS port?"),
        (LoginError("it offers ANONYMOUS", offered=["ANONYMOUS"]), "has no users: leave the user out"),
    ],
)
def test_a_connection_that_fails_says_what_to_do(
    error: OSError | AmqpError, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> int:
        raise error

    assert run(work(), RemoteAddress(scheme="amqps", host="host", port=5671, user="u", address="a")) == UNREACHABLE
    assert said in capsys.readouterr().err


def test_a_url_does_not_get_the_port_offset_and_is_told_the_open_port() -> None:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        named, there = sorted((one, other), key=lambda each: int(each.getsockname()[1]))  # one without listen() refuses
        there.listen()
        port, at_offset = named.getsockname()[1], there.getsockname()[1]
        options = ("x", "--port-offset", at_offset - port)
        for words in (("send", "-a", f"amqp://localhost:{port}/q"), ("publish", "t", "--server", f"mqtt://:{port}")):
            done = enmasse(*words, *options)
            assert done.returncode == UNREACHABLE, done
            assert f"this port? Port {at_offset} is open: --port-offset and ENMASSE_PORT_OFFSET do" in done.stderr


def test_a_suite_that_does_not_run_is_named_with_its_offset(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> int:
        raise error

    for offset, command in ((0, "`enmasse up`"), (1500, "`enmasse up --port-offset 1500`")):
        error: Exception = ConnectionRefusedError()
        assert run(work(), at_suite("a", offset)) == UNREACHABLE
        assert command in capsys.readouterr().err
        error = AmqpError(NOT_FOUND, "no")
        assert run(work(), at_suite("a", offset)) == UNREACHABLE
        assert command.replace("up", "address list") in capsys.readouterr().err


def test_a_link_that_is_closed_and_a_connection_that_is_lost() -> None:
    def detach(delivery: Delivery, number: int) -> None:
        delivery.accept()
        delivery.link.close("amqp:resource-deleted", "gone")

    def drop(delivery: Delivery, number: int) -> None:
        delivery.link.connection.abort()

    with peer(taking(detach, credit=1)) as port:
        status, told, err = send(port, "-m", "5")
        assert status == 0 and told["accepted"] == 5 and err.count("amqp:resource-deleted: gone") == 4
    with peer(taking(drop)) as port:
        status, told, err = send(port, "x", seconds=2)  # limit: every connection is lost
        assert status == 4 and (told["accepted"], told["unknown"]) == (0, 1) and "Traceback" not in err


def test_lines_of_stdin() -> None:
    got: list[Any] = []

    def act(delivery: Delivery, number: int) -> None:
        got.append((delivery.message.body, delivery.message.durable, delivery.message.ttl))
        delivery.accept()

    with peer(taking(act)) as port:
        done = enmasse("send", "-a", f"127.0.0.1:{port}/q", "--ttl", "2.5", input="a\r\n\nlast")
        assert done.returncode == 0 and "3 accepted" in done.stdout
        assert got == [("a", True, 2.5), ("", True, 2.5), ("last", True, 2.5)]
        got.clear()
        assert send(port, "--non-durable", "x")[0] == 0
        assert got == [("x", False, 0)]


def test_receive_takes_no_more_than_it_prints() -> None:
    outcomes: list[str] = []
    with peer(giving(*range(300), outcomes=outcomes)) as port:
        done = enmasse("receive", "-a", f"127.0.0.1:{port}/q", "-m", "150")
        assert (done.returncode, done.stdout.split()) == (0, [str(n) for n in range(150)])
        wait_for(lambda: len(outcomes) >= 150, what="the peer to have read all outcomes")
    assert outcomes.count("Outcome(accepted)") == 150 and len(outcomes) == 150


def test_receive_gives_back_what_nobody_reads() -> None:
    outcomes: list[str] = []
    with peer(giving(*["x" * 1000] * 100, outcomes=outcomes)) as port:
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(
            [ENMASSE, "receive", "-a", f"127.0.0.1:{port}/q"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE,
        )
        os.close(writing)
    assert done.returncode == 141 and "Traceback" not in done.stderr
    assert "Outcome(accepted)" not in outcomes


def test_a_message_that_is_none_is_rejected() -> None:
    outcomes: list[str] = []
    with peer(giving(b"\x00\x53\x77\xa1\xff", "good", outcomes=outcomes)) as port:
        done = enmasse("receive", "-a", f"127.0.0.1:{port}/q", "--count", "2", "--timeout", "60")
        wait_for(lambda: len(outcomes) >= 2, what="the peer to have read both outcomes")
    assert (done.returncode, done.stdout) == (0, "good\n")
    assert "rejected" in done.stderr
    assert sorted(outcomes)[0] == "Outcome(accepted)" and sorted(outcomes)[1].startswith("Outcome(rejected")


@pytest.mark.parametrize("options", [(), ("--non-durable",)])
def test_a_request_is_durable_unless_told_otherwise(options: tuple[str, ...]) -> None:
    found: list[Any] = []

    def act(delivery: Delivery, _: int) -> None:
        found.append(delivery.message.durable)
        delivery.reject("x:no", "no")

    take = taking(act)

    def attached(link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            link.proton_link.source.address = "replies"
            link.accept()
        else:
            take(link)

    with peer(attached) as port:
        done = enmasse("request", "-a", f"127.0.0.1:{port}/q", "body", *options)
    assert done.returncode == 1 and found == [not options], done


def test_what_was_answered_is_counted_when_it_is_interrupted() -> None:
    """Also what is answered only then."""
    late: list[Delivery] = []
    came = threading.Event()

    def act(delivery: Delivery, number: int) -> None:
        if number <= 3:
            delivery.accept()
        elif number <= 6:
            asyncio.get_running_loop().call_later(0.5, delivery.accept)
        else:
            late.append(delivery)
        if number == 10:
            came.set()

    with peer(taking(act, credit=10)) as port:
        command = [ENMASSE, "send", "-a", f"127.0.0.1:{port}/q", "--json", "--timeout", "60", "-m", "20"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert came.wait(DEADLINE)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=DEADLINE)
    told = json.loads(out)
    assert process.returncode == 130 and "Traceback" not in err
    assert (told["sent"], told["accepted"], told["unknown"], told["error"]) == (10, 6, 4, "interrupted")


def test_send_connects_again_and_sends_what_has_no_outcome() -> None:
    """The first connection is lost with a message that is accepted, and one that has no outcome; others follow."""
    got: list[Any] = []

    def act(delivery: Delivery, number: int) -> None:
        got.append(delivery.message.body)
        if len(got) == 2:
            delivery.link.connection.abort()
        else:
            delivery.accept()

    with peer(taking(act, credit=10)) as port:
        command = [ENMASSE, "send", "-a", f"127.0.0.1:{port}/q", "--timeout", "60"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            process.stdin.write("a\nb\n")
            process.stdin.flush()
            wait_for(lambda: len(got) >= 2)
            out, err = process.communicate("c\n", timeout=DEADLINE)
    assert process.returncode == 0 and err.count("connecting again") == 1, err
    assert "sent 3 to" in out and out.endswith(": 3 accepted\n")
    assert got in (["a", "b", "b", "c"], ["a", "b", "a", "b", "c"])  # the outcome of a may be lost too


def test_receive_connects_again() -> None:
    """After a lost connection, a detached link, and a server that was away."""
    attaches = 0

    def attached(link: ControlLink) -> None:
        nonlocal attaches
        assert isinstance(link, ControlSender)
        attaches += 1
        number = attaches
        sent = False

        def on_credit() -> None:
            nonlocal sent
            if sent:
                return
            sent = True
            link.send(proton.Message(body=f"message {number}"), settled)

        def settled(outcome: Any) -> None:
            if number == 1:
                link.connection.close()
            elif number == 2:
                link.close("qd:routed-link-lost", "the broker has gone")

        link.on_credit = on_credit
        link.accept()

    with peer(attached) as port:
        done = enmasse("receive", "-a", f"127.0.0.1:{port}/q", "--count", "3", "--timeout", "60")
    assert (done.returncode, done.stdout) == (0, "message 1\nmessage 2\nmessage 3\n"), done.stderr
    assert done.stderr.count("connecting again") == 2 and "the broker has gone" in done.stderr
    assert done.stderr.count("connected again\n") == 2


def test_receive_ends_where_nothing_is_to_be_had_any_more() -> None:
    attaches = 0

    def attached(link: ControlLink) -> None:
        nonlocal attaches
        attaches += 1
        if attaches > 1:
            link.refuse("amqp:not-found", "no such address")
        else:
            assert isinstance(link, ControlSender)
            link.on_credit = lambda: link.close("amqp:resource-deleted", "the address has been configured anew")
            link.accept()

    with peer(attached) as port:
        done = enmasse("receive", "-a", f"127.0.0.1:{port}/q")
    assert (done.returncode, done.stdout, attaches) == (4, "", 2)
    assert "configured anew; connecting again" in done.stderr and "no such address" in done.stderr


@pytest.mark.parametrize("command", [("send", "x"), ("receive",)], ids=lambda c: c[0])
def test_an_address_that_does_not_exist_has_its_own_error(command: tuple[str, ...]) -> None:
    with peer(lambda link: link.refuse("amqp:not-found", "no such address")) as port:
        done = enmasse(command[0], "-a", f"127.0.0.1:{port}/q", *command[1:])
    assert done.returncode == 4
    assert done.stderr.endswith("/q: amqp:not-found: no such address [address.name.unknown]\n")


def test_receive_has_patience_without_a_connection_only_as_long_as_without_a_message() -> None:
    attaches = 0

    def attached(link: ControlLink) -> None:
        nonlocal attaches
        assert isinstance(link, ControlSender)
        attaches += 1
        if attaches > 1:
            link.refuse("qd:no-route-to-dest", "the broker is away")
        else:
            link.on_credit = link.connection.close
            link.accept()

    with peer(attached) as port:
        done = enmasse("receive", "-a", f"127.0.0.1:{port}/q", "--timeout", f"{PASSES}")
    assert done.returncode == 4 and "connecting again" in done.stderr and "the broker is away" in done.stderr
    assert attaches > 2


def test_durable_where_nothing_is() -> None:
    def attached(link: ControlLink) -> None:
        link.proton_link.remote_source.durability = 0  # what the server does not do it does not say either
        link.accept()

    with peer(attached) as port:
        done = enmasse("receive", "-a", f"127.0.0.1:{port}/q", "--durable", "sub", "--timeout", "60")
    assert done.returncode == 4 and "only a topic has durable subscriptions" in done.stderr
    assert done.stderr.endswith(" [address.request.refused]\n")


@pytest.mark.parametrize("command", [("send", "x"), ("receive", "--selector", "a = 1")], ids=lambda c: c[0])
def test_what_an_address_refuses_is_no_failure_of_the_connection(command: tuple[str, ...]) -> None:
    with peer(lambda link: link.refuse("amqp:not-implemented", "selectors need a queue or a topic")) as port:
        done = enmasse(command[0], "-a", f"127.0.0.1:{port}/a", *command[1:])
    assert done.returncode == 4
    assert done.stderr.endswith("selectors need a queue or a topic [address.request.refused]\n")


def test_durable_subscriptions_as_proton_sees_them() -> None:
    seen: list[Any] = []

    def attached(link: ControlLink) -> None:
        source = link.proton_link.remote_source
        seen.append((link.name, link.connection.remote_container, source.durability, source.expiry_policy))
        link.accept()

    with peer(attached) as port:
        url = f"127.0.0.1:{port}/t"
        enmasse("receive", "-a", url, "--durable", "sub", "--timeout", "0.3")
        enmasse("receive", "-a", url, "--durable", "sub", "--container", "me", "--timeout", "0.3")
    never = proton.Terminus.EXPIRE_NEVER
    assert seen == [("sub", "enmasse-receive", 2, never), ("sub", "me", 2, never)]


def test_a_measurement_begins_with_the_first_credit() -> None:
    """A server that takes longer to give it than the measurement is to last is slow, and no message is lost."""
    receivers: list[ControlSender] = []

    def attached(link: ControlLink) -> None:
        link.accept()
        if isinstance(link, ControlSender):
            receivers.append(link)
        else:
            assert isinstance(link, ControlReceiver)
            link.on_message = passes_on
            link.window = 10
            asyncio.get_running_loop().call_later(0.5, link.grant, 10)

    def passes_on(delivery: Delivery) -> None:
        receivers[0].send(delivery.message)
        delivery.accept()

    with peer(attached) as port:
        done = enmasse("bench", "-a", f"127.0.0.1:{port}/q", "--seconds", "0.1", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["sent"] == told["accepted"] == told["received"] > 0 and told["latency_ms"]


def test_a_measurement_at_a_rate_by_several_at_both_ends() -> None:
    receivers: list[ControlSender] = []

    def attached(link: ControlLink) -> None:
        link.accept()
        if isinstance(link, ControlSender):
            receivers.append(link)
            return
        assert isinstance(link, ControlReceiver)
        link.on_message = passes_on
        link.window = 10
        link.grant(10)

    def passes_on(delivery: Delivery) -> None:
        receivers.append(receivers.pop(0))  # in turn
        receivers[0].send(delivery.message)
        delivery.accept()

    ends = ("--rate", "50", "--producers", "2", "--consumers", "2")
    with peer(attached) as port:
        done = enmasse("bench", "-a", f"127.0.0.1:{port}/q", "--seconds", "0.4", "--json", *ends)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(receivers) == 2 and told["latency_rate"] == 50 and told["latency_ms"]
    assert 2 <= told["sent"] == told["accepted"] == told["received"] <= 22


@pytest.mark.parametrize(
    ("text", "remote"),
    [
        ("q", at_suite("q", 7)),
        ("localhost:5672/examples", RemoteAddress(scheme="amqp", host="localhost", port=5672, address="examples")),
        ("host/a/b", RemoteAddress(scheme="amqp", host="host", port=5672, address="a/b")),
        ("amqp://host/a", RemoteAddress(scheme="amqp", host="host", port=5672, address="a")),
        ("amqps://host/a", RemoteAddress(scheme="amqps", host="host", port=5671, address="a")),
        (
            "amqp://u%40x:p%2Fw@[::1]:1234/a",
            RemoteAddress(scheme="amqp", host="::1", port=1234, user="u@x", password="p/w", address="a"),
        ),
    ],
)
def test_remote_addresses(text: str, remote: RemoteAddress) -> None:
    assert parse(text, 7) == remote


@pytest.mark.parametrize("text", ["http://host/a", "amqp://host", "amqp://host/", "host:x/a", "host:99999/a"])
def test_remote_addresses_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"scheme|address|port"):
        parse(text, 0)
    assert enmasse("send", "-a", text, "x").returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [("send",), ("send", "q", "x", "-a", "h/q"), ("receive",), ("receive", "q", "--unsubscribe"), ("bench",)],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert enmasse(*arguments).returncode == 2


def test_printing() -> None:
    message = Message(
        {"n": UInt(3), Symbol("s"): [b"\xff", b"text", float("inf")]},
        durable=True, ttl=5, application_properties={"a": 1}, subject="s", correlation_id=7,
    )  # fmt: skip
    assert json.loads(as_json(Message.decode(message.encode()))) == {
        "body": {"n": 3, "s": [{"base64": "/w=="}, "text", "inf"]},
        "durable": True, "id": None, "subject": "s", "correlation_id": 7, "ttl": 5, "properties": {"a": 1},
        "types": {"body": {"map": [
            ["n", {"uint": 3}],
            [{"symbol": "s"}, [{"binary": "/w=="}, {"binary": "dGV4dA=="}, {"double": "inf"}]],
        ]}},
    }  # fmt: skip
    assert as_text(Message("text")) == "text"
    assert as_text(Message(b"bytes")) == "bytes"
    assert as_text(Message(None)) == "null"
    assert as_text(Message(AmqpSequence([1, Described(Symbol("x:y"), "d")]))) == '[1, "d"]'
    assert as_text(Message(AmqpValue(Array(int, [1, 2])))) == "[1, 2]"


def test_properties() -> None:
    assert properties_from(("a=1", "b=x=y", "c=true", "d=[1]", "e=")) == {
        "a": 1,
        "b": "x=y",
        "c": True,
        "d": "[1]",
        "e": "",
    }
    with pytest.raises(ValueError, match="KEY=VALUE"):
        properties_from(("novalue",))


def test_percentiles() -> None:
    assert percentiles([]) == {}
    found = percentiles([n * 1_000_000 for n in range(1, 1001)])
    assert found == {"p50": 501.0, "p90": 901.0, "p99": 991.0, "p99.9": 1000.0, "max": 1000.0}
