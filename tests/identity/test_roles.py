"""What roles may do, and that docs/identity.md says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.identity.processes.roles import TABLE, Access, Listener, Peer, Role, access, may_receive, may_send, table

PAGE = Path(__file__).parents[2] / "docs" / "identity.md"


def test_docs_show_the_table_of_roles() -> None:
    assert table() in PAGE.read_text(), (
        "put the output of `python -m enmasse.identity.processes.roles` into docs/identity.md"
    )


@pytest.mark.parametrize(
    ("pattern", "address", "covered"),
    [
        ("orders", "orders", True),
        ("orders", "orders/new", False),
        ("orders", "order", False),
        ("orders/#", "orders", True),
        ("orders/#", "orders/new/1", True),
        ("orders/#", "ordersnew", False),
        ("#", "anything", True),
        ("#", "", True),
        ("#", "$sub/b/x", False),
        ("$sub/#", "$sub/b/x", True),
        ("$sub/#", "$subctrl", False),
    ],
)
def test_a_pattern_of_the_table_matches_as_documented(pattern: str, address: str, covered: bool) -> None:
    assert may_send(Access(send=(pattern,)), address) == may_receive(Access(recv=(pattern,)), address) == covered
    assert not may_receive(Access(send=(pattern,)), address)


def test_a_role_that_a_listener_does_not_list_may_nothing() -> None:
    assert access(Listener.AGENT, Peer("broker-1", Role.BROKER)) is None


def test_only_gateways_and_the_services_themselves_reach_the_nodes_of_mqtt() -> None:
    restoring = {Role.OPERATOR}
    table = {"$mqtt/sessions": ({Role.GATEWAY}, set()), "$mqtt/wills": ({Role.GATEWAY, Role.LWT}, restoring)}
    for node, (senders, operators) in table.items():
        found = {
            listener: {role for role, each in TABLE[listener].items() if may_send(each, node)}
            for listener in (Listener.SERVICES, Listener.OPERATORS)
        }
        assert found == {Listener.SERVICES: senders, Listener.OPERATORS: operators}


SOURCES: dict[Role, tuple[str, ...]] = {
    Role.AGENT: ("services/ragent",),
    Role.STORAGE_CONTROLLER: ("services/storage_controller",),
    Role.ROUTER: ("services/router",),
    Role.GATEWAY: ("services/mqtt_gateway", "enmasse/bridge"),
    Role.HTTP_GATEWAY: ("services/http_gateway", "enmasse/bridge"),
    Role.STOMP_GATEWAY: ("services/stomp_gateway", "enmasse/bridge"),
    Role.COAP_GATEWAY: ("services/coap_gateway", "enmasse/bridge"),
    Role.SUBSERV: ("services/subserv",),
    Role.LWT: ("services/mqtt_lwt",),
    Role.AUTHSERV: ("services/authserv",),
    Role.SUPERVISOR: ("enmasse/supervisor",),
    Role.CONSOLE: ("services/console",),
}
"""Where the processes of a role are. The operator is a person, and has what the configuration service offers."""
SHARED = (
    "enmasse/control/reports.py",
    "enmasse/control/configserv_client.py",
    "enmasse/control/local_usage.py",
    "enmasse/aio/usage_reports.py",
)


def test_the_configuration_service_gives_each_role_what_its_process_uses_and_no_more() -> None:
    """A process of which none names a feed or node in its source has no right to it."""
    root = Path(__file__).parents[2]
    found = TABLE[Listener.CONFIGSERV]
    assert found.keys() == {*SOURCES, Role.OPERATOR}
    for role, folders in SOURCES.items():
        files = [file for folder in folders for file in (root / folder).rglob("*.py")]
        text = "".join(file.read_text() for file in [*files, *(root / each for each in SHARED)])
        rights = {*found[role].send, *found[role].recv} - {"permissions"}  # which those of 0.2.0 follow
        assert rights == {right for right in rights if f'"{right}"' in text}, role


def test_a_role_without_a_connection_of_its_own_is_in_no_table() -> None:
    """Brokers are dialled."""
    assert not [listener for listener, roles in TABLE.items() if Role.BROKER in roles]
