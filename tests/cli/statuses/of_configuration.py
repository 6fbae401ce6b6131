"""Exit statuses of commands for addresses, flavors, users and their files."""

from __future__ import annotations

from pathlib import Path

from tests.cli.running import free_offset
from tests.cli.statuses.cases import case, configuration, of


@case("flavor", 0)
def flavor_added(folder: Path) -> int:
    return of("flavor", "add", "f", "--template", "queue-inmemory", "--config", configuration(folder))


@case("flavor", 1)
def no_such_flavor(folder: Path) -> int:
    return of("flavor", "show", "f", "--config", configuration(folder))


@case("config", 0)
def valid_configuration(folder: Path) -> int:
    return of("config", "check", configuration(folder))


@case("config", 1)
def invalid_configuration(folder: Path) -> int:
    config = configuration(folder)
    (config / "flavors.json").write_text("{")
    return of("config", "check", config)


@case("address", 0)
def added(folder: Path) -> int:
    return of("address", "add", "b", "--type", "anycast", "--config", configuration(folder))


@case("address", 1)
def added_twice(folder: Path) -> int:
    return of("address", "add", "a", "--type", "anycast", "--config", configuration(folder))


@case("address", 1)
def listed_from_nowhere(folder: Path) -> int:
    return of("address", "list", "--config", folder / "none")


@case("address", 4)
def forced_while_nothing_runs(folder: Path) -> int:
    config = configuration(folder)
    return of("address", "remove", "a", "--force", "--config", config, "--port-offset", free_offset())


@case("user", 0)
def user_added(folder: Path) -> int:
    return of("user", "add", "bob", "--generate", "--config", configuration(folder))


@case("user", 1)
def user_added_twice(folder: Path) -> int:
    return of("user", "add", "alice", "--generate", "--config", configuration(folder))


@case("user", 1)
def user_not_allowed(folder: Path) -> int:
    return of("user", "check", "alice", "send", "a", "--config", configuration(folder))
