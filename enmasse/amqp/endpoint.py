"""What both ends of a link have in common (OASIS AMQP 1.0, 2.6): attach, detach, modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.amqp import errors
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.performatives import Attach, Detach, Error, Flow

if TYPE_CHECKING:
    from enmasse.amqp.session import Session

U32 = 0xFFFFFFFF
UNSETTLED, SETTLED, MIXED = 0, 1, 2  # snd-settle-mode (2.8.2)
FIRST, SECOND = 0, 1  # rcv-settle-mode (2.8.3)


def serial_difference(a: int, b: int) -> int:
    """a - b in RFC 1982 arithmetic of 32 bits: from -2**31 to 2**31 - 1."""
    return ((a - b + 0x80000000) & U32) - 0x80000000


class SessionFault(AmqpError):
    """The peer broke a rule of the session: it is ended with this error."""


class LinkFault(AmqpError):
    """The peer broke a rule of one link: it is detached with this error."""

    def __init__(self, link: Link, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.link = link


class Link:
    """What both ends have in common. `source`, `target` and the modes are ours once attached; `remote_*` the peer's."""

    __slots__ = (
        "_attach_sent",
        "_detach_sent",
        "_over",
        "_state_size",
        "context",
        "handle",
        "max_message_size",
        "name",
        "properties",
        "rcv_settle_mode",
        "remote_attach",
        "remote_handle",
        "remote_source",
        "remote_target",
        "session",
        "snd_settle_mode",
        "source",
        "target",
    )
    is_sender = False

    def __init__(self, session: Session, name: str, handle: int) -> None:
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
        self.max_message_size = 0  # what we said in our attach; 0: no bound
        self.context: Any = None  # yours
        self._attach_sent = False
        self._detach_sent = False
        self._over = False
        self._state_size = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} handle {self.handle} of {self.session!r}>"

    @property
    def attached(self) -> bool:
        """Both ends have attached and neither has detached."""
        return self._attach_sent and self.remote_attach is not None and not self._detach_sent and not self._over

    @property
    def detached(self) -> bool:
        """Nothing can be sent on it any more: we detached, or it is over."""
        return self._detach_sent or self._over

    def accept(self, source: Any = None, target: Any = None, **fields: Any) -> None:
        """Answer the peer's attach. Termini default to the peer's own; `fields` are further ones of attach (2.7.3)."""
        if self._attach_sent or self._over:
            return
        self.source = self.remote_source if source is None else source
        self.target = self.remote_target if target is None else target
        self._send_attach(fields)
        self._went_live()

    def refuse(self, error: AmqpError) -> None:
        """Answer the peer's attach with a null terminus and a detach (2.6.3)."""
        if self._attach_sent:
            self.detach(error)
        elif not self._over:
            self.source = None if self.is_sender else self.remote_source
            self.target = self.remote_target if self.is_sender else None
            try:
                self._send_attach({})
            except AmqpError:  # what it asked for does not fit into its own frames: said without it
                self.source = self.target = None
                self.properties = {}
                try:
                    self._send_attach({})
                except AmqpError as too_small:
                    self.session.connection.close(too_small)
                    return
            self.detach(error)

    def detach(self, error: AmqpError | None = None, closed: bool = True) -> None:
        """Leave. `on_detach` follows when the peer has answered; outcomes may come until then."""
        if self._detach_sent or self._over:
            return
        if not self._attach_sent:
            self.refuse(error or AmqpError(errors.DETACH_FORCED))
            return
        session = self.session
        self._went_dead()
        session._flush()  # what was settled or granted before belongs before
        self._detach_sent = True
        session._send(Detach(handle=self.handle, closed=closed, error=None if error is None else Error.of(error)))

    def _send_attach(self, fields: dict[str, Any]) -> None:
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
        self.session._send(attach)
        self._attach_sent = True

    def _take_modes(self, attach: Attach) -> None:
        self.snd_settle_mode = MIXED if attach.snd_settle_mode is None else int(attach.snd_settle_mode)
        self.rcv_settle_mode = FIRST if attach.rcv_settle_mode is None else int(attach.rcv_settle_mode)

    def _went_live(self) -> None:
        """Both attaches are here."""

    def _went_dead(self) -> None:
        """From now on the fast path must not touch the link."""

    def _on_flow(self, flow: Flow) -> None:
        raise NotImplementedError

    def _lost(self, tokens: list[Any] | None) -> None:
        """The link is over: tell what was left (`tokens`, or what is found), before on_detach."""

    def _let_go(self) -> None:
        """Last of all: what a user has put here refers to the link, so it must not be referred to."""


_MAX_CONDITION = 64
_MAX_DESCRIPTION = 200


def shortened(error: Error) -> Error:
    """What fits into the smallest frame: without info, bytes of condition and description bounded."""
    condition = error.condition if len(error.condition) <= _MAX_CONDITION else errors.INTERNAL_ERROR
    description = (error.description or "").encode()[:_MAX_DESCRIPTION].decode(errors="ignore")
    return Error(condition=condition, description=description)


def from_error(error: Error | None) -> AmqpError | None:
    """The exception for an error from the wire; None for none."""
    return None if error is None else error.exception()
