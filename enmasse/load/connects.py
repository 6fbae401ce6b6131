"""Connections that are opened and closed at once, a number of them at a time: SASL, TLS, open, close.

Keys of SCRAM are derived once for each salt, so that the load is not PBKDF2; a server with a new salt each time makes
the client derive them each time, too.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import hmac
import secrets
import ssl
import time
from functools import cache
from typing import Any

from enmasse.amqp.codec.frames import HEADER
from enmasse.amqp.codec.performatives import (
    Close,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    decode_performative,
    encode_performative,
)
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.sasl.handshake import AMQP_HEADER, SASL_HEADER
from enmasse.load.load_process import barrier, run


def frame(performative: Any, kind: int) -> bytes:
    body = encode_performative(performative)
    return HEADER(len(body) + 8, 2, kind, 0) + body


@cache
def keys(password: str, salt: str, rounds: int) -> tuple[bytes, bytes]:
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), rounds)
    key = hmac.digest(salted, b"Client Key", "sha256")
    return key, hashlib.sha256(key).digest()


def final_message(first: str, challenge: str, password: str) -> bytes:
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    key, stored = keys(password, fields["s"], int(fields["i"]))
    text = f"c=biws,r={fields['r']}"
    signature = hmac.digest(stored, f"{first},{challenge},{text}".encode(), "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{text},p={base64.b64encode(proof).decode()}".encode()


class Client:
    """One connection."""

    def __init__(self, args: argparse.Namespace, number: int, reader: asyncio.StreamReader, writer: Any) -> None:
        self._args = args
        self._user = args.user.replace("{}", str(number))
        self._password = args.password.replace("{}", str(number))
        self._reader = reader
        self._write = writer.write

    async def frame(self) -> Any:
        head = await self._reader.readexactly(8)
        body = await self._reader.readexactly(int.from_bytes(head[:4], "big") - 8)
        return decode_performative(body, 0, len(body))[0] if body else None

    async def sasl(self) -> None:
        mechanism, first = self._args.mechanism, ""
        initial = b""
        if mechanism == "PLAIN":
            initial = f"\0{self._user}\0{self._password}".encode()
        elif mechanism.startswith("SCRAM"):
            first = f"n={self._user},r={secrets.token_hex(12)}"
            initial = f"n,,{first}".encode()
        self._write(SASL_HEADER + frame(SaslInit(mechanism=Symbol(mechanism), initial_response=initial), 1))
        await self._reader.readexactly(8)
        while not isinstance(found := await self.frame(), SaslOutcome):
            if isinstance(found, SaslMechanisms):
                continue
            challenge = bytes(found.challenge).decode()
            answer = final_message(first, challenge, self._password) if challenge.startswith("r=") else b""
            self._write(frame(SaslResponse(response=answer), 1))
        if found.code:
            raise ConnectionError(f"{mechanism} as {self._user} was refused with code {found.code}")

    async def all(self) -> None:
        if self._args.mechanism != "none":
            await self.sasl()
        self._write(AMQP_HEADER + frame(Open(container_id=self._args.container or secrets.token_hex(8)), 0))
        await self._reader.readexactly(8)
        found = await self.frame()
        if not isinstance(found, Open):
            raise ConnectionError(f"open was answered by {found}")
        self._write(frame(Close(), 0))
        while not isinstance(found := await self.frame(), Close):
            pass
        if found.error is not None:
            raise ConnectionError(str(found.error))


async def connects(args: argparse.Namespace) -> None:
    context = None
    if args.tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    numbers = iter(range(args.count))

    async def some() -> None:
        for number in numbers:
            reader, writer = await asyncio.open_connection("127.0.0.1", args.port, ssl=context)
            await asyncio.wait_for(Client(args, number % args.users, reader, writer).all(), 60)
            writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(args.at_once):
            group.create_task(some())


def load(args: argparse.Namespace) -> dict[str, Any]:
    barrier(args, "ready")
    began = time.monotonic()
    asyncio.run(connects(args))
    return {"rate": args.count / (time.monotonic() - began), "client_ms": time.process_time() / args.count * 1e3}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=["connect"])
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--at-once", type=int, default=16, help="connections under way")
    options.add_argument("--mechanism", default="ANONYMOUS")
    options.add_argument("--user", default="", help="{}: a number below --users")
    options.add_argument("--users", type=int, default=1)
    options.add_argument("--password", default="")
    options.add_argument("--container", default="")
    options.add_argument("--tls", action="store_true")
    options.add_argument("--barrier", action="store_true")
    run(options, {"connect": load})


if __name__ == "__main__":
    main()
