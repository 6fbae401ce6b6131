"""Reason codes of MQTT for the outcomes of messages and the conditions of AMQP."""

from __future__ import annotations

from typing import Final

from enmasse.bridge.client_refused import Refusal
from enmasse.bridge.message_outcomes import MessageOutcome
from enmasse.mqtt import reasons
from services.mqtt_gateway.interfaces import UNKNOWN

_REASONS: Final = {
    "amqp:not-found": reasons.TOPIC_NAME_INVALID,
    "amqp:unauthorized-access": reasons.NOT_AUTHORIZED,
    "amqp:not-allowed": reasons.NOT_AUTHORIZED,
    "amqp:resource-limit-exceeded": reasons.QUOTA_EXCEEDED,
    "amqp:link:message-size-exceeded": reasons.QUOTA_EXCEEDED,
    "amqp:decode-error": reasons.PAYLOAD_FORMAT_INVALID,
}
_OF_OUTCOME: Final = {
    MessageOutcome.ACCEPTED: reasons.SUCCESS,
    MessageOutcome.UNHEARD: reasons.NO_MATCHING_SUBSCRIBERS,
    MessageOutcome.RELEASED: reasons.IMPLEMENTATION_SPECIFIC_ERROR,
    MessageOutcome.MODIFIED: reasons.IMPLEMENTATION_SPECIFIC_ERROR,
    MessageOutcome.UNAVAILABLE: UNKNOWN,  # a refusal is final, and some clients take it for an acknowledgement
    MessageOutcome.UNKNOWN: UNKNOWN,
}

REASONS_OF_REFUSAL: Final = {
    Refusal.CREDENTIALS: reasons.BAD_USER_NAME_OR_PASSWORD,
    Refusal.METHOD: reasons.BAD_AUTHENTICATION_METHOD,
    Refusal.NOT_ALLOWED: reasons.NOT_AUTHORIZED,
    Refusal.BUSY: reasons.SERVER_BUSY,
    Refusal.AWAY: reasons.SERVER_UNAVAILABLE,
    Refusal.QUOTA: reasons.QUOTA_EXCEEDED,
    Refusal.RATE: reasons.CONNECTION_RATE_EXCEEDED,
}
"""Reason codes of CONNACK."""


def reason_of(condition: str) -> int:
    """Return the reason code of PUBACK and PUBREC (v5 3.4.2.1) for a condition of AMQP."""
    return _REASONS.get(condition, reasons.IMPLEMENTATION_SPECIFIC_ERROR)


def reason_of_outcome(outcome: MessageOutcome, condition: str) -> int:
    """Return the reason code of PUBACK and PUBREC, or interfaces.UNKNOWN, for the outcome of a message."""
    return reason_of(condition) if outcome is MessageOutcome.REJECTED else _OF_OUTCOME[outcome]
