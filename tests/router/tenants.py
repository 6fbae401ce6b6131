"""Routers, users and plans of address spaces: a configuration service, an authentication service, two routers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from enmasse.model import feeds
from enmasse.model.feeds import ReachedSpace
from enmasse.model.users import Permission, User
from tests.authserv.running import Running, user
from tests.configserv.running import FLAVORS, Client, Configserv
from tests.kit.waiting import DEADLINE
from tests.router.harness import SILENCE, RouterProcess, free_port

ALL = (Permission(effect="allow", operations=("send", "recv"), addresses=("#",)),)
USERS = {name: user("pw", random=False, permissions=ALL) for name in ("alice", "bob")}
SPACES = {"one": ReachedSpace(), "two": ReachedSpace(), "three": ReachedSpace()}
LIMITS = {"connections": 5, "connectionsPerUser": 3, "linksPerConnection": 2, "maxMessageSize": 1000}


def _entry(each: User) -> dict[str, Any]:
    """Return the entry of users.json of a user."""
    entry: dict[str, Any] = msgspec.to_builtins(each)
    permissions = [{"allow": ["send", "recv"], "addresses": ["#"]}]
    return {"password": entry["password"], "scram": entry["scram"], "permissions": permissions}


class Front(RouterProcess):
    """A router that follows the configuration service, with a listener for users."""

    def __init__(self, name: str, configserv: str, authserv: int) -> None:
        self.users = free_port()
        plugin = {"name": "auth", "host": "127.0.0.1", "port": str(authserv)}
        listener = {
            "name": "users", "host": "127.0.0.1", "port": str(self.users), "saslPlugin": "auth", "management": False,
            "idleTimeoutSeconds": SILENCE, "authenticatePeer": True,
        }  # fmt: skip
        entities: list[list[Any]] = [["authServicePlugin", plugin], ["listener", listener]]
        super().__init__(entities, router_id=name, default="balanced", settings={"configserv": configserv})


class Installation:
    """A configuration service, an authentication service and two routers."""

    def __init__(self, folder: Path, addresses: Any = None) -> None:
        """`addresses`: of each space; None: none."""
        self.configserv = Configserv(folder)
        self.put("flavors.json", FLAVORS)
        self.put("addresses.json", {})
        self.put("users.json", {})
        self.put("spaces.json", {"one": {"plan": "small"}, "two": {}, "three": {"plan": "changing"}})
        for space in SPACES:
            self.put(f"spaces/{space}/addresses.json", addresses or {})
            self.put(f"spaces/{space}/users.json", {name: _entry(each) for name, each in USERS.items()})
        self.plans(connections=4)
        self.authserv = Running()
        self.fronts: list[Front] = []

    def __enter__(self) -> Installation:
        self.authserv.__enter__()
        in_spaces = {f"!!{space}/{name}": each for space in SPACES for name, each in USERS.items()}
        self.authserv.replace(feeds.Users(spaces=SPACES, in_spaces=in_spaces))
        self.configserv.start()
        where = self.configserv.settings["listen"]
        self.fronts = [Front(name, where, self.authserv.port) for name in ("r1", "r2")]
        return self

    def __exit__(self, *failure: Any) -> None:
        for front in self.fronts:
            front.stop()
        self.configserv.stop()
        self.authserv.__exit__(*failure)

    def put(self, path: str, content: Any) -> None:
        """Write a file by atomic rename."""
        file = self.configserv.config / path
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.new")
        new.write_text(json.dumps(content))
        new.rename(file)

    def limit_users(self, space: str, **limits: int) -> None:
        """Let each user of a space have these limits, which are those of a group."""
        users = {name: {**_entry(each), "groups": ["limited"]} for name, each in USERS.items()}
        self.put(f"spaces/{space}/users.json", {**users, "@limited": {"limits": limits}} if limits else users)

    def plans(self, **changing: int) -> None:
        """Write the plan of the space one, and one with these limits of the space three."""
        limits = {"small": LIMITS, "changing": changing}
        self.put(
            "plans.json",
            {name: {"kind": "space", "addressPlans": [], "limits": each} for name, each in limits.items()},
        )

    def connect(self, front: int, user: str = "alice", space: str = "one") -> BlockingConnection:
        return BlockingConnection(
            f"127.0.0.1:{self.fronts[front].users}", timeout=DEADLINE, user=f"{user}@{space}", password="pw",
            allowed_mechs="PLAIN",
        )  # fmt: skip

    def refused(self, front: int, user: str = "alice", space: str = "one") -> str:
        """Return why a connection is refused."""
        with pytest.raises(ConnectionException) as refusal:
            self.connect(front, user, space)
        return str(refusal.value)

    def used(self, space: str = "one") -> dict[str, int]:
        """Return what a space uses, as the newest status shows it."""
        used: dict[str, int] = self.space(space)["used"]
        return used

    def space(self, name: str) -> dict[str, Any]:
        """Return a space as the newest status shows it."""
        client = Client(self.configserv)
        try:
            found: dict[str, Any] = client.next("status")["spaces"][name]
        finally:
            client.close(DEADLINE)
        return found
