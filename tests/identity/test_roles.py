"""What roles may do, and that docs/identity.md says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.identity.roles import TABLE, Access, Listener, Peer, Role, access, may_receive, may_send, table

PAGE = Path(__file__).parents[2] / "docs" / "identity.md"


def test_docs_show_the_table_of_roles() -> None:
    assert table() in PAGE.read_text(), "put the output of `python -m enmasse.identity.roles` into docs/identity.md"


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
    for node, senders in (("$mqtt/sessions", {Role.GATEWAY}), ("$mqtt/wills", {Role.GATEWAY, Role.LWT})):
        found = {
            listener: {role for role, each in TABLE[listener].items() if may_send(each, node)}
            for listener in (Listener.SERVICES, Listener.OPERATORS)
        }
        assert found == {Listener.SERVICES: senders, Listener.OPERATORS: set()}
