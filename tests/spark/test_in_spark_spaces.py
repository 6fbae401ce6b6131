"""Source, sink and tables in address spaces: two with equal names of addresses and users in one Spark session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from enmasse.spark import register_addresses
from enmasse.spark.options import OptionError
from enmasse.spark.server_options import login_of, space_of
from enmasse.testing import Suite
from tests.kit.spaces import running_with_spaces
from tests.kit.waiting import wait_for
from tests.spark.conftest import DEADLINE, LIMIT
from tests.system.users import allow, entry

pytestmark = pytest.mark.timeout(LIMIT)

QUEUE = {"type": "queue", "flavor": "small-persisted-queue"}
ADDRESSES = {"orders": QUEUE, "results": QUEUE}
ALL = ("default", "one", "two")
PASSWORD = "the same"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    users = {"alice": entry(PASSWORD, allow("#"))}
    files: dict[str, Any] = {"spaces.json": {"one": {}, "two": {}}, "users.json": users}
    for space in ALL[1:]:
        files |= {f"spaces/{space}/addresses.json": ADDRESSES, f"spaces/{space}/users.json": users}
    with running_with_spaces(tmp_path_factory.mktemp("spaces"), files, addresses=ADDRESSES) as suite:
        suite.up()
        yield suite
        assert suite.down() == 0


@pytest.fixture(autouse=True)
def password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "alice.pw"
    file.write_text(PASSWORD)
    monkeypatch.setenv("ENMASSE_USER", "alice")
    monkeypatch.setenv("ENMASSE_PASSWORD_FILE", str(file))
    return file


def command(suite: Suite, space: str, *arguments: str) -> list[str]:
    within = () if space == "default" else ("--space", space)
    done = suite.command(*arguments, *within, "--port-offset", str(suite.offset))
    assert done.returncode == 0, done
    return done.stdout.splitlines()


def login(suite: Suite, space: str, password: Path) -> dict[str, str]:
    """Return the options by which alice of a space logs in: for `two` by the name of the user."""
    user = {"two": "alice@two"}.get(space, "alice")
    more = {"space": space} if space == "one" else {}
    return {"url": suite.url, "user": user, "passwordFile": str(password), **more}


def copy(spark: Any, suite: Suite, space: str, folder: Path, options: dict[str, str]) -> Any:
    """Start a query from `orders` to `results`."""
    source = spark.readStream.format("amqp").options(**options).option("address", "orders")
    rows = source.option("spool", str(folder / "spool")).load().selectExpr("text as body")
    sink = rows.writeStream.format("amqp").options(**options).option("address", "results")
    return sink.option("checkpointLocation", str(folder / "checkpoint")).start()


def offsets(folder: Path) -> dict[str, Any]:
    newest = max((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    found: dict[str, Any] = json.loads(newest.read_text().splitlines()[-1])
    return found


@pytest.mark.slow  # tests/tenants/test_tenants.py guards links of equal names in two spaces
def test_two_spaces_with_equal_names_in_one_session(spark: Any, suite: Suite, tmp_path: Path, password: Path) -> None:
    queries = {}
    for space in ALL:
        command(suite, space, "send", "orders", f"of {space}")
        queries[space] = copy(spark, suite, space, tmp_path / space, login(suite, space, password))
    try:
        for space in ALL:
            found = command(suite, space, "receive", "results", "--count", "1", "--timeout", str(DEADLINE))
            assert found == [f"of {space}"]
            wait_for((tmp_path / space / "checkpoint" / "commits" / "0").exists)  # or the next query sends it again
    finally:
        for query in queries.values():
            query.stop()
    for space in ALL:
        assert command(suite, space, "receive", "orders", "--browse") == []
        assert command(suite, space, "receive", "results", "--browse") == []
        assert offsets(tmp_path / space).get("space", "default") == space
    other = copy(spark, suite, "two", tmp_path / "one", login(suite, "two", password))
    with pytest.raises(StreamingQueryException, match="in the address space 'one', and the query is to read"):
        other.awaitTermination(DEADLINE)
    again = copy(spark, suite, "one", tmp_path / "one", {**login(suite, "one", password), "user": "alice@one"})
    try:
        command(suite, "one", "send", "orders", "again")
        found = command(suite, "one", "receive", "results", "--count", "1", "--timeout", str(DEADLINE))
        assert found == ["again"]
    finally:
        again.stop()


def test_tables_of_two_spaces_have_names_of_their_own(spark: Any, suite: Suite, password: Path) -> None:
    for space in ("one", "two"):
        command(suite, space, "send", "orders", f"row of {space}")
        options = {**login(suite, space, password), "space": space}
        assert register_addresses(spark, addresses=["orders"], **options) == {f"{space}_orders": "orders"}
    for space in ("one", "two"):
        assert [row.text for row in spark.sql(f"select text from {space}_orders").collect()] == [f"row of {space}"]
        command(suite, space, "receive", "orders", "--count", "1", "--timeout", "20")


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"space": "one"}, 'the option "space" needs a user'),
        ({"space": "No", "user": "a", "passwordFile": "f"}, "option \"space\": 'No'"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], wrong: str) -> None:
    with pytest.raises(OptionError, match=wrong):
        login_of({name.lower(): value for name, value in options.items()}, "source")


@pytest.mark.parametrize(
    ("url", "option", "space"),
    [
        ("amqp://alice@h", "", ""),
        ("amqp://alice%40two:pw@h", "", "two"),
        ("amqp://alice%40example.com:pw@h", "", ""),
        ("amqp://alice%40two:pw@h", "one", "one"),
    ],
)
def test_a_login_names_the_space_of_offsets(url: str, option: str, space: str) -> None:
    assert space_of(login_of({"url": url, "space": option}, "source")) == space
