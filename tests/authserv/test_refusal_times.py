"""Refusals of logins cost the same, whether there is such a space or such a user: processor time of the whole process,
client and server, of logins that take turns."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from enmasse.amqp.sasl.layer import ClientMechanism, PlainClient
from enmasse.identity.login import SPACES
from enmasse.identity.processes import scram
from enmasse.identity.processes.relays import relayed_host_name
from enmasse.identity.processes.roles import Role
from enmasse.identity.processes.scram import ScramClient
from enmasse.identity.proofs import passwords
from enmasse.identity.proofs.passwords import Cost
from enmasse.model import feeds
from enmasse.model.feeds import ReachedSpace
from services.authserv import authenticator
from tests.authserv.running import Running, ask_engine, user
from tests.authserv.test_requests import gateway
from tests.identity.kit import Suite

TIMES, WITHIN = 1000, 1.1
KINDS: dict[str, Callable[[int], tuple[str, str, str | None]]] = {
    "unknown space": lambda n: ("alice@none", f"wrong {n}", None),
    "unknown user": lambda n: ("nobody@one", f"wrong {n}", None),
    "wrong password": lambda n: ("alice@one", f"wrong {n}", None),
    "wrong password of a generated one": lambda n: ("device@one", f"wrong {n}", None),
    "another space's user": lambda n: ("bob@one", "bob's", None),
    "another space's password": lambda n: ("alice@one", "alice's of two", None),
    "unknown user, at a host of no space": lambda n: ("nobody", f"wrong {n}", None),
    "unknown user, at a space's host": lambda n: ("nobody", f"wrong {n}", "one"),
    "wrong password, at a host of no space": lambda n: ("alice", f"wrong {n}", None),
    "wrong password, at a space's host": lambda n: ("alice", f"wrong {n}", "one"),
    "another space's user, at a space's host": lambda n: ("bob", "bob's", "one"),
}
"""Kind of refusal → name and password of the n-th, and the space that its host means."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(tmp_path_factory.mktemp("peers"), (Role.GATEWAY, Role.ROUTER))


@pytest.fixture(scope="module")
def service(suite: Suite) -> Iterator[Running]:
    """Of hashes that cost little, beside which a difference shows."""
    patch = pytest.MonkeyPatch()
    patch.setattr(passwords, "CHOSEN", Cost(256, 1, 1))
    for module in (passwords, authenticator):
        patch.setattr(module, "USER_ITERATIONS", scram.ITERATIONS)
    with Running(peers=str(suite.file), logins="127.0.0.1:0", mechanisms=("SCRAM-SHA-256", "PLAIN")) as running:
        running.replace(
            feeds.Users(
                users={"alice": user("alice's of default", random=False)},
                spaces={"one": ReachedSpace(), "two": ReachedSpace()},
                in_spaces={
                    "!!one/alice": user("alice's", random=False),
                    "!!one/device": user("device's"),
                    "!!two/alice": user("alice's of two", random=False),
                    "!!two/bob": user("bob's", random=False),
                },
            )
        )
        yield running
    patch.undo()


ADDRESSES = (f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in count())
"""Of clients, one for each login: one with many failures has to wait, and repeated lines of audit are counted."""
Refused = Callable[[str, str, str | None, str], None]
"""Has a login refused: name, password, the space that the client's host means, and its address."""


def by_sasl(service: Running, mechanism: Callable[[str, str], ClientMechanism]) -> Refused:
    """As routers do for AMQP clients."""

    def refused(name: str, password: str, space: str | None, address: str) -> None:
        host = relayed_host_name(space or "default", address, "")
        assert not ask_engine(service.port, mechanism(name, password), host, (SPACES,)).opened

    return refused


@contextlib.contextmanager
def by_request(service: Running, suite: Suite) -> Iterator[Refused]:
    """As gateways do for MQTT clients, and the console for requests and browsers."""
    loop = asyncio.new_event_loop()
    links = gateway(service, suite)
    asking = loop.run_until_complete(links.__aenter__())

    def refused(name: str, password: str, space: str | None, address: str) -> None:
        (answer,) = loop.run_until_complete(asking.answers((name, password), client=address, space=space))
        assert answer.outcome == "refused"

    yield refused
    loop.run_until_complete(links.__aexit__(None, None, None))
    loop.close()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["PLAIN", "SCRAM", "request"])
def test_refusals_cost_the_same(service: Running, suite: Suite, way: str) -> None:
    spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with contextlib.ExitStack() as stack:
        if way == "request":
            refused = stack.enter_context(by_request(service, suite))
        else:
            refused = by_sasl(service, PlainClient if way == "PLAIN" else ScramClient)
        for number in range(TIMES):
            for kind, stated in KINDS.items():
                began = time.process_time()
                refused(*stated(number), next(ADDRESSES))
                spent[kind].append(time.process_time() - began)
    medians = {kind: round(statistics.median(times) * 1e6) for kind, times in spent.items()}
    for by_host in (False, True):
        those = [median for kind, median in medians.items() if ("host" in kind) is by_host]
        assert max(those) < WITHIN * min(those), medians
