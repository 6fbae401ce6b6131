"""The rules of CONNECT (v3.1.1 3.1, v5 3.1) that are left once it could be read, and what CONNACK says."""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

from msgspec.structs import replace

from enmasse.identity.login import Certified
from enmasse.identity.proofs.stated_names import user_in
from enmasse.model.mqtt_limits import Limits
from enmasse.mqtt import reasons
from enmasse.mqtt.packets import NEVER, V5, Connect, Properties
from enmasse.mqtt.reader import BIGGEST
from services.mqtt_gateway.interfaces import NOT_ASKED, Asked, Refused, Request, Session

SMALL_PACKET: Final = 1024
"""Bytes of a packet that each client may send, however small the messages of its space are."""
METHODS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""Methods of enhanced authentication (v5 4.12)."""


class Terms(NamedTuple):
    """Agreed parameters of a connection. `keep_alive` in seconds, 0: none; `receive_maximum`, `maximum_packet_size`,
    `aliases`: what the client takes. `assigned`: its identifier is the gateway's, `overruled`: so is its keep alive,
    `shortened`: and its session expiry."""

    request: Request
    keep_alive: int
    receive_maximum: int
    maximum_packet_size: int
    aliases: int
    assigned: bool
    shortened: bool
    overruled: bool
    bridge: bool


def examine(
    connect: Connect,
    limits: Limits,
    peer: str,
    certificate: Certified | None = None,
    *,
    any_site: bool = False,
    asked: Asked = NOT_ASKED,
) -> Terms:
    """Examine a CONNECT that is well-formed. `certificate`: of the client, verified; `any_site`, `asked`: as in
    Request. Raises Refused if it cannot be accepted."""
    given = connect.properties
    v5 = connect.version == V5
    if given.auth_method is not None and given.auth_method not in METHODS:
        raise Refused(reasons.BAD_AUTHENTICATION_METHOD, f"authentication methods are {', '.join(METHODS)}")
    client_id = connect.client_id
    assigned = not client_id
    if assigned:
        if not v5 and not connect.clean:
            # MQTT-3.1.3-8 of v3.1.1
            raise Refused(reasons.CLIENT_IDENTIFIER_NOT_VALID, "a session that is kept needs a client identifier")
        client_id = f"auto-{secrets.token_hex(12)}"
    elif len(client_id) > limits.client_id or len(client_id.encode()) > limits.client_id:
        raise Refused(
            reasons.CLIENT_IDENTIFIER_NOT_VALID, f"the client identifier has more than {limits.client_id} bytes"
        )
    will = connect.will
    if will is not None and will.properties.payload_format == 1 and not is_utf8(will.payload):
        raise Refused(reasons.PAYLOAD_FORMAT_INVALID, "the payload of the will is not UTF-8, as its format says")
    expiry = 0 if connect.clean else NEVER
    if v5:
        expiry = given.session_expiry or 0
    expiry = min(expiry, limits.session_expiry)
    keep_alive = connect.keep_alive
    if v5 and limits.keep_alive and not 0 < keep_alive <= limits.keep_alive:
        keep_alive = limits.keep_alive
    most = given.receive_maximum or 65535
    if not v5:
        most = limits.window
    request = Request(
        client_id=client_id,
        clean=connect.clean,
        expiry=expiry,
        version=connect.version,
        window=min(most, limits.window),
        peer=peer,
        will=will,
        username=connect.username,
        password=connect.password,
        auth_method=given.auth_method,
        auth_data=given.auth_data,
        certificate=certificate,
        asked=asked,
        any_site=any_site,
    )
    return Terms(
        request=request,
        keep_alive=keep_alive,
        receive_maximum=most,
        maximum_packet_size=given.maximum_packet_size or BIGGEST,
        aliases=min(given.topic_alias_maximum or 0, limits.topic_aliases),
        assigned=assigned,
        shortened=v5 and expiry != (given.session_expiry or 0),
        overruled=keep_alive != connect.keep_alive,
        bridge=connect.bridge,
    )


def stated_user(connect: Connect) -> str:
    """Return the user that a CONNECT names; empty if it names none."""
    given = connect.properties
    return connect.username or "" if given.auth_method is None else user_in(given.auth_method, given.auth_data)


def max_packet(limits: Limits, session: Session) -> int:
    """Return the bytes of the largest packet that the client of a session may send: those of the largest message, but
    room for a SUBSCRIBE at least."""
    most = session.max_message
    return limits.max_packet if most is None else min(limits.max_packet, max(most, SMALL_PACKET))


def answer(terms: Terms, limits: Limits, max_packet: int) -> Properties:
    """Return the properties of the CONNACK that accepts a client of MQTT 5: what differs from the specification's
    defaults."""
    values = Properties(
        receive_maximum=limits.receive_maximum if limits.receive_maximum != 65535 else None,
        maximum_packet_size=max_packet,
        topic_alias_maximum=limits.topic_aliases or None,
    )
    if terms.request.auth_method is not None:
        values = replace(values, auth_method=terms.request.auth_method, auth_data=terms.request.auth_data)
    if terms.assigned:
        values = replace(values, assigned_client_id=terms.request.client_id)
    if terms.shortened:
        values = replace(values, session_expiry=terms.request.expiry)
    if terms.overruled:
        values = replace(values, server_keep_alive=terms.keep_alive)
    return values


def is_utf8(payload: bytes) -> bool:
    """Return True if the bytes are UTF-8."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
