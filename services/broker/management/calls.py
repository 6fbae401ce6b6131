"""Operations by resource, name and parameter types: how a call finds its function, as Artemis chooses an overload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from services.broker.core.broker import Broker
from services.broker.core.connections import Connections
from services.broker.core.errors import BrokerError

VERSION = "2.44.0"  # of the Artemis whose management this follows

F = TypeVar("F", bound=Callable[..., Any])

# Parameter kinds: s string, i whole number, d number, b boolean, o object, a array; capital: null is taken as well.
_KINDS: dict[str, tuple[type, ...]] = {
    "s": (str,),
    "i": (int,),
    "d": (int, float),
    "b": (bool,),
    "o": (dict,),
    "a": (list,),
}


@dataclass
class CallContext:
    """`user`: of the connection; it becomes the `user` of queues that are made without one."""

    broker: Broker
    clients: Connections
    user: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of management: its function and the types of its parameters."""

    kinds: str
    function: Callable[..., Any]


class Operations:
    """The operations of one kind of resource."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Operation]] = {}

    @classmethod
    def joined(cls, *others: Operations) -> Operations:
        """Return one table with the operations of all these."""
        made = cls()
        for other in others:
            for name, operations in other._by_name.items():
                made._by_name.setdefault(name, []).extend(operations)
        return made

    def add(self, names: str, kinds: str = "") -> Callable[[F], F]:
        """Decorator: the function serves these names (divided by spaces) for these parameter kinds."""

        def register(function: F) -> F:
            for name in names.split():
                self._by_name.setdefault(name, []).append(Operation(kinds, function))
            return function

        return register

    def find(self, name: str, parameters: list[Any]) -> Callable[..., Any]:
        """Return the operation of this name that takes these parameters.

        Raises BrokerError AMQ229069 if there is no such.
        """
        for operation in self._by_name.get(name, ()):
            if len(operation.kinds) == len(parameters) and all(map(_fits, operation.kinds, parameters)):
                return operation.function
        raise BrokerError(f"AMQ229069: no operation {name}/{len(parameters)}")

    def getter(self, attribute: str) -> Callable[..., Any]:
        """The operation that reads an attribute: `messageCount` is read by `getMessageCount` or `isMessageCount`.

        Raises BrokerError AMQ229068 if there is no such attribute.
        """
        title = attribute[:1].upper() + attribute[1:]
        for name in (f"get{title}", f"is{title}"):
            for operation in self._by_name.get(name, ()):
                if not operation.kinds:
                    return operation.function
        raise BrokerError(f"AMQ229068: no getter method for {attribute}")


def _fits(kind: str, value: Any) -> bool:
    if value is None:
        return kind.isupper()
    types = _KINDS[kind.lower()]
    if isinstance(value, bool):
        return bool in types
    if kind in "iI" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, types)
