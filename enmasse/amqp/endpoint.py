"""Common part of both ends of a link (OASIS AMQP 1.0, 2.6): attach, detach, modes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Attach, Detach, Error, Flow, Open

UNSETTLED, SETTLED, MIXED = 0, 1, 2  # snd-settle-mode (2.8.2)
FIRST, SECOND = 0, 1  # rcv-settle-mode (2.8.3)


class LinkConnection(Protocol):
    """The connection of a link (connection.Connection), as links and their users see it."""

    context: Any
    state: str

    @property
    def remote_open(self) -> Open | None: ...
    @property
    def remote_max_frame(self) -> int: ...
    @property
    def blocked(self) -> bool: ...

    def close(self, error: AmqpError | None = None) -> None: ...
    def wake(self) -> None: ...


class LinkSession(Protocol):
    """The session of a link (session.Session), as links and their users see it."""

    context: Any
    precedence: int

    @property
    def connection(self) -> LinkConnection: ...
    @property
    def channel(self) -> int: ...
    @property
    def ended(self) -> bool: ...
    @property
    def crowded(self) -> bool: ...

    def settle(self, delivery_id: int, state: Any = ACCEPTED) -> None: ...
    def update(self, delivery_id: int, state: Any) -> None: ...
    def update_all(self, delivery_ids: Iterable[int], state: Any) -> list[int]: ...
    def unsettled_out(self) -> tuple[int, Mapping[int, tuple[Link, Any]]]: ...
    def end(self, error: AmqpError | None = None) -> None: ...
    def send(self, performative: Any) -> None: ...
    def send_flow(self, **link_fields: Any) -> None: ...
    def send_credit(self, handle: int, delivery_count: int, credit: int) -> None: ...
    def touch(self) -> None: ...
    def flush(self) -> None: ...


class SessionFault(AmqpError):
    """The peer broke a rule of the session: it is ended with this error."""


class LinkFault(AmqpError):
    """The peer broke a rule of one link: it is detached with this error."""

    def __init__(self, link: Link, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.link = link


class Link:
    """Common part of senders and receivers. `source`, `target` and the modes are the local ones once attached;
    `remote_*` the peer's.

    Members below "for the session" are for the session that the link belongs to only.
    """

    __slots__ = (
        "attach_sent",
        "broken",
        "context",
        "detach_sent",
        "handle",
        "max_message_size",
        "name",
        "over",
        "properties",
        "rcv_settle_mode",
        "remote_attach",
        "remote_handle",
        "remote_source",
        "remote_target",
        "session",
        "snd_settle_mode",
        "source",
        "state_size",
        "target",
    )
    is_sender = False

    def __init__(self, session: LinkSession, name: str, handle: int) -> None:
        self.session = session
        self.name = name
        self.handle = handle  # ours, in frames we send
        self.remote_handle = -1
        self.source: Any = None
        self.target: Any = None
        self.remote_source: Any = None
        self.remote_target: Any = None
        self.remote_attach: Attach | None = None
        self.properties: dict[Any, Any] = {}
        self.snd_settle_mode = MIXED
        self.rcv_settle_mode = FIRST
        self.max_message_size = 0  # as in our attach; 0: no bound
        self.context: Any = None  # yours
        self.attach_sent = False
        self.detach_sent = False
        self.over = False
        self.broken = False  # it has ended, and not in order: the peer was lost, was silent, or stated an error
        self.state_size = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} handle {self.handle} of {self.session!r}>"

    @property
    def attached(self) -> bool:
        """Both ends have attached and neither has detached."""
        return self.attach_sent and self.remote_attach is not None and not self.detach_sent and not self.over

    @property
    def detached(self) -> bool:
        """Return True if nothing can be sent on it: it is detached locally, or has ended."""
        return self.detach_sent or self.over

    def accept(self, source: Any = None, target: Any = None, **fields: Any) -> None:
        """Answer the peer's attach. Termini default to the peer's own; `fields` are further ones of attach (2.7.3)."""
        if self.attach_sent or self.over:
            return
        self.source = self.remote_source if source is None else source
        self.target = self.remote_target if target is None else target
        self.send_attach(fields)
        self.went_live()

    def refuse(self, error: AmqpError) -> None:
        """Answer the peer's attach with a null terminus and a detach (2.6.3)."""
        if self.attach_sent:
            self.detach(error)
        elif not self.over:
            self.source = None if self.is_sender else self.remote_source
            self.target = self.remote_target if self.is_sender else None
            try:
                self.send_attach({})
            except AmqpError:  # what it asked for does not fit into its own frames: answer without it
                self.source = self.target = None
                self.properties = {}
                try:
                    self.send_attach({})
                except AmqpError as too_small:
                    self.session.connection.close(too_small)
                    return
            self.detach(error)

    def detach(self, error: AmqpError | None = None, closed: bool = True) -> None:
        """Leave. `on_detach` follows when the peer has answered; outcomes may come until then."""
        if self.detach_sent or self.over:
            return
        if not self.attach_sent:
            self.refuse(error or AmqpError(errors.DETACH_FORCED))
            return
        session = self.session
        self.went_dead()
        session.flush()  # what was settled or granted before belongs before
        self.detach_sent = True
        session.send(Detach(handle=self.handle, closed=closed, error=None if error is None else Error.of(error)))

    # --- for the session ----------------------------------------------------------------------------------------------

    def send_attach(self, fields: dict[str, Any]) -> None:
        """Send our attach with these fields (2.7.3); modes default to the peer's. Raises AmqpError if it does not fit a
        frame."""
        remote = self.remote_attach
        if remote is not None:
            fields.setdefault("snd_settle_mode", remote.snd_settle_mode)
            fields.setdefault("rcv_settle_mode", remote.rcv_settle_mode)
        if self.is_sender:
            fields.setdefault("initial_delivery_count", 0)
        if self.properties:
            fields.setdefault("properties", self.properties)
        if "max_message_size" not in fields and self.max_message_size:
            fields["max_message_size"] = self.max_message_size
        self.max_message_size = fields.get("max_message_size") or 0
        attach = Attach(
            name=self.name,
            handle=self.handle,
            role=not self.is_sender,
            source=self.source,
            target=self.target,
            **fields,
        )
        self._take_modes(attach)
        self.session.send(attach)
        self.attach_sent = True

    def _take_modes(self, attach: Attach) -> None:
        self.snd_settle_mode = MIXED if attach.snd_settle_mode is None else int(attach.snd_settle_mode)
        self.rcv_settle_mode = FIRST if attach.rcv_settle_mode is None else int(attach.rcv_settle_mode)

    def went_live(self) -> None:
        """Both attaches are here."""

    def went_dead(self) -> None:
        """Note that the link has ended: the fast path must not use it again."""

    def take_flow(self, flow: Flow) -> None:
        """The peer's flow for this link."""
        raise NotImplementedError

    def lose(self, tokens: list[Any] | None) -> None:
        """End the link: report deliveries without an outcome (`tokens`, or the unsettled ones), before on_detach."""

    def let_go(self) -> None:
        """Release the references of the user, which refer to the link."""


def from_error(error: Error | None) -> AmqpError | None:
    """Return the exception for an error from the wire; None for none."""
    return None if error is None else error.exception()
