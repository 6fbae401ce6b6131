"""What sources and targets ask for, and the client that is to be the only one of its container-id."""

from __future__ import annotations

from enmasse.amqp import termini
from enmasse.amqp.codec.performatives import Coordinator, Source, Target
from enmasse.amqp.codec.types import Symbol


def test_capabilities_are_read_in_small_letters_and_a_coordinator_has_none() -> None:
    assert termini.capabilities(Target(capabilities=(Symbol("Queue"), Symbol("SHARED")))) == {"queue", "shared"}
    assert termini.capabilities(Source()) == termini.capabilities(Coordinator()) == termini.capabilities(None) == set()


def test_what_only_a_topic_has() -> None:
    assert termini.subscription_kind(Source()) == ""
    assert termini.subscription_kind(Source(durable=2)) == "durable"
    assert termini.subscription_kind(Source(expiry_policy=Symbol("never"))) == "durable"
    assert termini.subscription_kind(Source(capabilities=(Symbol("shared"),))) == "shared"
