"""Correct MQTT endpoints that stop at every packet of an exchange, and go on over any number of lost connections.

Each is driven by the test, packet by packet; `finish` does what is left. What an endpoint must remember over its
connections (MQTT 3.1.1 and 5 section 4.1) it remembers; what the server must, it relies on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from tests.conformance.wire import (
    CONNACK,
    DISCONNECT,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SESSION_EXPIRY,
    SUBACK,
    Packet,
    Raw,
    Will,
    ack,
    connect,
    publish,
    subscribe,
)
from tests.kit.waiting import DEADLINE

SECONDS = DEADLINE
"""A client gives up after this long."""
PATIENCE = 15
"""A connection without an answer for so long is given up: what it waits for may have died behind the gateway."""


class Lost(Exception):
    """The connection is gone."""


class Endpoint:
    """A client with a session that is kept. `ports`: where it may connect, the next one is tried when one fails."""

    def __init__(self, client: str, version: int, ports: Callable[[], list[int]]) -> None:
        self.client, self.version, self.ports = client, version, ports
        self.raw: Raw | None = None
        self.will: Will | None = None
        self.connects = 0
        self.deadline = time.monotonic() + SECONDS

    def connected(self) -> Raw:
        """The connection; made (again) if there is none, and what was under way is taken up."""
        tries = 0
        while self.raw is None:
            ports = self.ports()
            try:
                self._dial(ports[tries % len(ports)])
            except (OSError, Lost):
                self.drop()
                assert time.monotonic() < self.deadline, f"{self.client} cannot connect"
                # pause: until it tries again
                time.sleep(0.05)
                tries += 1
        return self.raw

    def _dial(self, port: int) -> None:
        raw = self.raw = Raw("127.0.0.1", port, self.version)
        props = [(SESSION_EXPIRY, 3600)] if self.version == 5 else []
        raw.send(connect(self.client, self.version, clean=False, props=props, will=self.will))
        answer = self.packet()
        if answer.kind != CONNACK or answer.code:
            raise Lost
        assert self.connects == 0 or answer.present == 1, f"{self.client}: its session is lost"
        self.connects += 1
        self.resume()

    def resume(self) -> None:
        """Send again what is not acknowledged."""

    def packet(self) -> Packet:
        """The next packet of the connection; raises Lost."""
        assert self.raw is not None
        try:
            found = self.raw.next(PATIENCE)
        except OSError:
            found = None
        if found is None or found.kind == DISCONNECT:
            self.drop()
            raise Lost
        return found

    def write(self, *packets: bytes) -> None:
        """Raises Lost."""
        try:
            self.connected().send(*packets)
        except OSError:
            self.drop()
            raise Lost from None

    def drop(self) -> None:
        if self.raw is not None:
            self.raw.cut()
            self.raw = None


class Sender(Endpoint):
    """Publishes one message after the other with QoS 1 or 2. `stage`: what was done of the current one."""

    def __init__(self, client: str, version: int, ports: Callable[[], list[int]], qos: int) -> None:
        super().__init__(client, version, ports)
        self.qos, self.pid, self.stage = qos, 0, "done"
        self.topic, self.payload, self.retain = "", b"", False
        self.doubtful = 0
        """How often a message was sent again."""

    def begin(self, topic: str, payload: bytes, retain: bool = False) -> None:
        """PUBLISH is written."""
        assert self.stage == "done"
        self.connected()
        self.topic, self.payload, self.retain = topic, payload, retain
        self.pid = self.pid % 65535 + 1
        self.stage = "published"
        self._publish(dup=False)

    def _publish(self, dup: bool) -> None:
        self.write(
            publish(self.topic, self.payload, self.version, qos=self.qos, pid=self.pid, dup=dup, retain=self.retain)
        )

    def resume(self) -> None:
        if self.stage in ("published", "released"):
            self.doubtful += 1
            if self.stage == "published":
                self._publish(dup=True)
            else:
                self.write(ack(PUBREL, self.pid))

    def acknowledged(self) -> None:
        """PUBACK or PUBREC has come. Raises Lost."""
        self._await("published", PUBACK if self.qos == 1 else PUBREC, "done" if self.qos == 1 else "received")

    def release(self) -> None:
        """PUBREL is written. Raises Lost, after which it is sent again."""
        self.stage = "released"
        self.write(ack(PUBREL, self.pid))

    def complete(self) -> None:
        """PUBCOMP has come. Raises Lost."""
        self._await("released", PUBCOMP, "done")

    def _await(self, stage: str, kind: int, then: str) -> None:
        self.connected()
        while self.stage == stage:
            found = self.packet()
            if found.kind != kind or found.pid != self.pid:
                continue
            if found.code >= 0x80 and kind != PUBCOMP:  # not taken: it is a new message
                assert time.monotonic() < self.deadline, f"{self.client}: refused with 0x{found.code:x} to the end"
                # pause: until it tries again
                time.sleep(0.05)
                self._publish(dup=False)
            else:
                self.stage = then

    def finish(self) -> None:
        """All that is left of the exchange, over any number of connections."""
        while self.stage != "done":
            assert time.monotonic() < self.deadline, f"{self.client} stands at {self.stage}"
            try:
                if self.stage == "published":
                    self.acknowledged()
                elif self.stage == "received":
                    self.release()
                else:
                    self.complete()
            except Lost:
                continue

    def send(self, topic: str, payload: bytes, retain: bool = False) -> None:
        with contextlib.suppress(Lost):
            self.begin(topic, payload, retain)
        self.finish()


class Receiver(Endpoint):
    """Subscribed to one filter. `got`: payloads of every message once, as QoS 2 demands of a receiver."""

    def __init__(self, client: str, version: int, ports: Callable[[], list[int]], qos: int) -> None:
        super().__init__(client, version, ports)
        self.qos = qos
        self.got: list[bytes] = []
        self._open: set[int] = set()
        """Packet ids of QoS 2 messages that were not released."""
        self._owed: dict[int, bytes] = {}
        """Packet id → the answer that was not written on this connection."""

    def subscribe(self, name: str) -> None:
        self.write(subscribe(1, [(name, self.qos)], self.version))
        while (found := self.packet()).kind != SUBACK:
            assert found.kind != PUBLISH
        assert found.codes == (self.qos,), found

    def await_message(self) -> int:
        """Up to a PUBLISH, which is not answered; its packet id. Raises Lost."""
        self.connected()
        while (found := self.packet()).kind != PUBLISH:
            assert found.kind == PINGRESP, found
        if found.qos < 2 or found.pid not in self._open:
            self.got.append(found.payload)
        if found.qos == 2:
            self._open.add(found.pid)
        self._owed[found.pid] = ack(PUBACK if self.qos == 1 else PUBREC, found.pid)
        return found.pid

    def drop(self) -> None:
        super().drop()
        self._owed.clear()

    def received(self, pid: int) -> None:
        """PUBACK or PUBREC is written."""
        self._owed.pop(pid, None)
        self.write(ack(PUBACK if self.qos == 1 else PUBREC, pid))

    def released(self, pid: int) -> None:
        """PUBREL has come. Raises Lost."""
        while (found := self.packet()).kind != PUBREL or found.pid != pid:
            pass
        self._open.discard(pid)
        self._owed[pid] = ack(PUBCOMP, pid)

    def complete(self, pid: int) -> None:
        """PUBCOMP is written."""
        self._owed.pop(pid, None)
        self.write(ack(PUBCOMP, pid))

    def collect(self, marker: bytes) -> None:
        """Everything up to the marker, over any number of connections."""
        while marker not in self.got or self._open:
            assert time.monotonic() < self.deadline, f"{self.client} waits for {marker!r} and has {self.got}"
            self._answer_one()

    def complete_all(self) -> None:
        """Complete every exchange that has begun, over any number of connections."""
        self.connected()
        while self._open:
            assert time.monotonic() < self.deadline, f"{self.client} has not completed {self._open}"
            self._answer_one()

    def _answer_one(self) -> None:
        """Receive a packet and answer it, connecting first if there is no connection."""
        try:
            self.connected()
            owed, self._owed = self._owed, {}
            self.write(*owed.values())
            found = self.packet()
            if found.kind == PUBLISH:
                if found.qos < 2 or found.pid not in self._open:
                    self.got.append(found.payload)
                if found.qos == 2:
                    self._open.add(found.pid)
                self.received(found.pid)
            elif found.kind == PUBREL:
                self._open.discard(found.pid)
                self.complete(found.pid)
        except Lost:
            pass
