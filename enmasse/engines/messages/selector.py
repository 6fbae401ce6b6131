"""Selectors in the names that Artemis' management knows: only AMQP links translate those of JMS. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from enmasse.control import RequestFailed

_NAMES = {
    "JMSPriority": "AMQPriority",
    "JMSTimestamp": "AMQTimestamp",
    "JMSExpiration": "AMQExpiration",
    "JMSDeliveryMode": "AMQDurable",
}
_MODES = {"'PERSISTENT'": "'DURABLE'", "'NON_PERSISTENT'": "'NON_DURABLE'"}
_MISSING = {
    "JMSMessageID": "write AMQUserID = 'ID:…' for the message-id",
    "JMSDestination": "it is that of the queue",
    "JMSReplyTo": "choose the messages by their ids",
    "JMSRedelivered": "choose the messages by their ids",
    "JMSXDeliveryCount": "choose the messages by their ids",
}
"""Names that no message has there, by which nothing would be found → what to do."""
_TOKENS = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|[A-Za-z_$][\w$]*""")


def translated(selector: str) -> str:
    """Return the selector for Artemis. Raises RequestFailed for a name that it does not know."""
    modes = "JMSDeliveryMode" in selector

    def word(found: re.Match[str]) -> str:
        text = found[0]
        if text[0] == "'":
            return _MODES.get(text, text) if modes else text
        if text in _MISSING:
            raise RequestFailed(0, f"Artemis does not select by {text}: {_MISSING[text]}")
        return _NAMES.get(text, text)

    return _TOKENS.sub(word, selector)


def origin_is(addresses: Iterable[str]) -> str:
    """Return the selector of dead letters that came from one of these addresses."""
    return " OR ".join("_AMQ_ORIG_ADDRESS = '" + each.replace("'", "''") + "'" for each in addresses)


def both(one: str, other: str) -> str:
    """Return the selector of what both take; empty: everything."""
    return f"({one}) AND ({other})" if one and other else one or other
