"""Which links there are: by name on a connection, by handle in a session (OASIS AMQP 1.0, 2.6.1 and 2.6.2)."""

from __future__ import annotations

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.endpoint import Link, SessionFault
from enmasse.amqp.limits import MOST_REFUSED, Limits

Key = tuple[str, bool]
"""Name, and whether we are the sender: a name may be used once in each direction (2.6.1)."""


def key(link: Link) -> Key:
    """Return what names a link on its connection: name and direction (2.6.1)."""
    return link.name, link.is_sender


class LinkNames:
    """The links of a connection that a peer has attached by name, and what all links of it cost."""

    __slots__ = ("_links", "count", "limits", "state_size")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._links: dict[Key, Link] = {}
        self.count = 0
        """Links in all sessions."""
        self.state_size = 0
        """Encoded size of the attach frames that are remembered."""

    def beyond(self, size: int) -> int:
        """Return how many links beyond the limit there are with one more (0 or more: refuse it); `size`: bytes of its
        attach. Raises SessionFault if it cannot even be refused."""
        beyond = self.count - self.limits.max_links
        if beyond >= MOST_REFUSED:
            raise SessionFault(errors.RESOURCE_LIMIT_EXCEEDED, f"more than {self.limits.max_links} links")
        if self.state_size + size > self.limits.max_link_state:
            raise SessionFault(errors.RESOURCE_LIMIT_EXCEEDED, "the links of this connection carry too much state")
        return beyond

    def get(self, key: Key) -> Link | None:
        """Return the link of this name and direction, None without one."""
        return self._links.get(key)

    def attached(self, link: Link, size: int) -> None:
        """The peer has attached it, with an attach of `size` bytes."""
        link.state_size = size
        self.state_size += size
        self._links[key(link)] = link

    def remove(self, link: Link) -> None:
        """Forget a link that has ended."""
        self.count -= 1
        self.state_size -= link.state_size
        if self._links.get(key(link)) is link:
            del self._links[key(link)]


class LinkTable:
    """The links of a session: ours by our handle, the peer's by its handle, and those that wait for its attach."""

    __slots__ = ("_awaiting", "_by_handle", "_by_remote", "_free", "_highest_remote", "_names", "_next")

    def __init__(self, names: LinkNames) -> None:
        self._names = names
        self._by_handle: dict[int, Link] = {}
        self._by_remote: dict[int, Link] = {}
        self._awaiting: dict[Key, Link] = {}
        self._next = 0
        self._free: list[int] = []
        self._highest_remote = -1  # handle that the peer has attached

    def __len__(self) -> int:
        return len(self._by_handle)

    def all(self) -> list[Link]:
        """Return all links of the session."""
        return list(self._by_handle.values())

    def new_handle(self, handle_max: int) -> int:
        """Return a local handle for a new link. Raises AmqpError if the peer allows no further link."""
        if self._free:
            return self._free.pop()
        if self._next > handle_max:
            raise AmqpError(errors.RESOURCE_LIMIT_EXCEEDED, f"the peer allows {handle_max + 1} links in a session")
        self._next += 1
        return self._next - 1

    def add(self, link: Link, *, awaiting: bool) -> None:
        """A new link. `awaiting`: we attach it, the peer is to answer."""
        self._by_handle[link.handle] = link
        if awaiting:
            self._awaiting[key(link)] = link
        self._names.count += 1

    def answered(self, key: Key) -> Link | None:
        """Return the link of ours that an attach of the peer answers."""
        return self._awaiting.pop(key, None)

    def bind(self, link: Link, handle: int, size: int) -> None:
        """The peer has attached it by this handle, with an attach of `size` bytes."""
        link.remote_handle = handle
        self._by_remote[handle] = link
        if handle > self._highest_remote:
            self._highest_remote = handle
        self._names.attached(link, size)

    def by_remote(self, handle: int) -> Link | None:
        """Return the link of the peer's handle, None without one."""
        return self._by_remote.get(handle)

    def remote(self, handle: int, what: str) -> Link:
        """Return the link by the peer's handle. Raises SessionFault if none is attached."""
        link = self._by_remote.get(handle)
        if link is None:
            raise SessionFault(errors.UNATTACHED_HANDLE, f"{what} handle {handle}, which is not attached")
        return link

    def was_attached(self, handle: int) -> bool:
        """The peer has attached by this handle, or one above it, before."""
        return handle <= self._highest_remote

    def remove(self, link: Link) -> None:
        """Forget a link that has ended, and free its handles."""
        del self._by_handle[link.handle]
        self._by_remote.pop(link.remote_handle, None)
        self._free.append(link.handle)
        if self._awaiting.get(key(link)) is link:
            del self._awaiting[key(link)]
        self._names.remove(link)
