"""Restores what services keep for the clients of an address space, by requests of operators."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, TypeVar

import msgspec

from enmasse.aio.client import Client, connect
from enmasse.amqp.codec.errors import INTERNAL_ERROR, AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Rejected
from enmasse.amqp.codec.types import Symbol, UInt
from enmasse.amqp.messages.message import Message
from enmasse.cli.backups.space_messages import renamed
from enmasse.cli.backups.space_subscriptions import owned_by
from enmasse.cli.contexts.remote import at_operators
from enmasse.identity.annotations import CLIENT_ID, WILL_DELAY
from enmasse.identity.processes.credentials import Credential
from enmasse.model import sessions as wire
from enmasse.model.names import space_prefix
from enmasse.model.sessions import Kept

WILLS = "$mqtt/wills"
SECONDS = 60.0
"""For an answer."""
GRACE = 5
"""Seconds that clients have at least to be back before their wills are published."""
R = TypeVar("R")

Queues = dict[str, list[str]]
"""Queue of a backup → the queues that take its place."""


class KeptRestore:
    """Restores into an address space over one connection to the router; `async with`. `names`: the space of the backup,
    and the new one."""

    def __init__(self, names: tuple[str, str], offset: int, credential: Credential | None) -> None:
        self._names = names
        self._remote = at_operators(wire.CONTROL, offset)
        self._credential = credential
        self._stack = AsyncExitStack()
        self._client: Client
        self._wills: Any = None
        self._held: list[wire.KeptWill] = []

    async def __aenter__(self) -> KeptRestore:
        remote = self._remote
        self._client = await self._stack.enter_async_context(
            connect(host=remote.host, port=remote.port, credential=self._credential)
        )
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    async def clear(self) -> None:
        """Remove the retained messages that there are: a restore before was killed. Raises AmqpError, TimeoutError."""
        await self._order("clear_retained", wire.ByFilter(filter=f"{space_prefix(self._names[1])}#"), wire.Done)

    async def put(self, kept: Kept) -> Queues:
        """Restore a session or subscription with its empty queues, or a retained message. Raises AmqpError,
        TimeoutError, ValueError."""
        before, now = self._names
        if (session := kept.session) is not None:
            away = msgspec.structs.replace(session, client=owned_by(session.client, before, now))
            return (await self._order("restore_session", away, wire.RestoredQueues)).queues
        if (subscription := kept.subscription) is not None:
            made = msgspec.structs.replace(subscription, subscription=owned_by(subscription.subscription, before, now))
            return (await self._order("restore_subscription", made, wire.RestoredQueues)).queues
        if (retained := kept.retained) is not None:
            name, user = self._name(retained.name), None if retained.user is None else self._name(retained.user)
            message = renamed(retained.message, before, now)
            moved = msgspec.structs.replace(retained, name=name, message=message, user=user)
            await self._order("restore_retained", moved, wire.Done)
        return {}

    async def hold(self, will: wire.KeptWill) -> None:
        """Restore a will as that of a client that is connected. Raises AmqpError, TimeoutError."""
        if self._wills is None:
            self._wills = await self._client.sender(WILLS, timeout=SECONDS)
        moved = msgspec.structs.replace(
            will,
            client=owned_by(will.client, *self._names),
            to=self._name(will.to),
            message=renamed(will.message, *self._names),
            user=self._name(will.user),
        )
        sealed = await self._order("restore_will", moved, wire.KeptWill)
        message = Message(msgspec.json.encode(sealed).decode(), subject="restore-will")
        await self._report(message)
        self._held.append(will)

    async def let_go(self) -> None:
        """State that the clients whose wills are held are lost: their wills are published after their delays, unless
        the clients are back. Raises AmqpError, TimeoutError."""
        while self._held:
            will = self._held.pop()
            message = Message(None, subject="will-publish")
            message.annotations[Symbol(CLIENT_ID)] = owned_by(will.client, *self._names)
            message.annotations[Symbol(WILL_DELAY)] = UInt(max(will.delay, GRACE))
            await self._report(message)

    async def _report(self, message: Message) -> None:
        outcome = await self._wills.send(message, timeout=SECONDS)
        if outcome is not ACCEPTED and outcome is not None:
            error = outcome.error if isinstance(outcome, Rejected) else None
            raise AmqpError(INTERNAL_ERROR, f"will: {outcome if error is None else error.description}")

    def _name(self, name: str) -> str:
        """Return the full name of an address or user in the new space; wills name addresses without a space, too."""
        before, now = map(space_prefix, self._names)
        return now + name.removeprefix(before) if name.startswith(before) else name

    async def _order(self, subject: str, body: Any, reply: type[R]) -> R:
        message = Message(msgspec.json.encode(body).decode(), subject=subject)
        answer = await self._client.request(message, wire.CONTROL, timeout=SECONDS)
        return msgspec.json.decode(str(answer.body), type=reply)
