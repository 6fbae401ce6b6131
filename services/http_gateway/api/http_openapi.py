"""The OpenAPI document of the gateway, from the tables of headers and answers."""

from __future__ import annotations

from typing import Any

import msgspec

from enmasse import __version__
from services.http_gateway.api.event_requests import EVENTS
from services.http_gateway.api.header_mapping import IDEMPOTENCY, PROPERTIES, TABLE
from services.http_gateway.api.http_problems import PROBLEM
from services.http_gateway.api.posting import BATCH

_BYTES = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
_KINDS = {"number": "integer", "time": "integer", "flag": "boolean"}
_NAME: dict[str, Any] = {
    "name": "name",
    "in": "query",
    "description": "of the user's subscription, which also gets what is sent while no client reads",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,100}$"},
}
_REFUSED = {
    "400": "a header or the path is wrong",
    "401": "user name, password or token are missing or wrong",
    "403": "no permission",
    "404": "there is no such address",
    "408": "the body did not come in time",
    "413": "the message is too large",
    "429": "a quota is used up: Retry-After says when to try again",
    "503": "no receiver took it in time, or a service is away: Retry-After says when to try again",
}


def document() -> bytes:
    """Return the document as JSON."""
    problem = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}

    def answers(**more: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {status: {"description": text, "content": problem} for status, text in _REFUSED.items()}
        return found | {status[1:]: answer for status, answer in more.items()}

    headers = [
        {
            "name": each.header,
            "in": "header",
            "description": f"{each.section}: {each.field.replace('_', '-')}" + (f"; {each.note}" if each.note else ""),
            "schema": {"type": _KINDS.get(each.kind, "string")},
        }
        for each in TABLE
        if each.header != "content-type"  # OpenAPI states it with the body
    ]
    more = {
        PROPERTIES: "application properties, as a JSON object",
        IDEMPOTENCY: "an address that knows duplicates stores one message for a key of a user",
        "prefer": "`respond-async`: the message is sent settled, and 202 does not wait for an outcome",
    }
    headers += [
        {"name": name, "in": "header", "description": text, "schema": {"type": "string"}} for name, text in more.items()
    ]
    post = {
        "operationId": "post",
        "summary": "Send a message",
        "parameters": [
            *headers,
            {
                "name": "batch",
                "in": "query",
                "description": f"the body is {BATCH}: a JSON object for each message; the answer has a line for each",
                "schema": {"type": "string"},
                "allowEmptyValue": True,
            },
        ],
        "requestBody": {"content": _BYTES},
        "responses": answers(
            _200={"description": "outcomes of a batch", "content": {BATCH: {"schema": {"type": "string"}}}},
            _201={"description": "accepted: a broker has stored it, or a receiver has it"},
            _202={"description": "sent settled"},
            _422={"description": "rejected; `condition` says why", "content": problem},
            _504={"description": "the outcome is unknown: send it again, with the same key", "content": problem},
        ),
    }
    numbers = {"wait": "seconds to wait", "count": "messages, as lines of JSON", "lock": "seconds of the lock"}
    take = {
        "operationId": "next",
        "summary": "Take messages and lock them",
        "parameters": [
            {"name": name, "in": "query", "description": text, "schema": {"type": "integer"}}
            for name, text in numbers.items()
        ],
        "responses": answers(
            _200={"description": "a message; `Location` is the path of its delivery", "content": _BYTES},
            _204={"description": "there is no message"},
            _422={"description": "its properties are too large for headers: use `count`", "content": problem},
        ),
    }
    stream = {
        "operationId": "events",
        "summary": "Read the messages of a topic or multicast address as Server-Sent Events",
        "parameters": [
            _NAME,
            {
                "name": "last-event-id",
                "in": "header",
                "description": "id of the last event that the client had",
                "schema": {"type": "string"},
            },
        ],
        "responses": answers(
            _200={"description": "events", "content": {EVENTS: {"schema": {"type": "string"}}}},
        ),
    }
    unsubscribe = {
        "operationId": "unsubscribe",
        "summary": "End a subscription, with what it holds",
        "parameters": [{**_NAME, "required": True}],
        "responses": answers(_204={"description": "it has ended"}),
    }
    request = {
        "operationId": "request",
        "summary": "Send a request and return its reply",
        "parameters": [
            *(each for each in headers if each["name"] not in (IDEMPOTENCY, "prefer", "enmasse-reply-to")),
            {"name": "wait", "in": "query", "description": "seconds for the reply", "schema": {"type": "integer"}},
        ],
        "requestBody": {"content": _BYTES},
        "responses": answers(
            _200={"description": "the reply", "content": _BYTES},
            _422={"description": "the request was rejected; `condition` says why", "content": problem},
            _504={"description": "no reply came in time", "content": problem},
        ),
    }
    names = {"enum": ["released", "modified", "rejected", "accepted"]}
    outcome = {"application/json": {"schema": {"type": "object", "properties": {"outcome": names}}}}

    def settle(name: str, text: str) -> dict[str, Any]:
        return {
            "operationId": name,
            "summary": text,
            "responses": answers(
                _204={"description": "done: the broker has settled it, or the lock is renewed"},
                _410={"description": "the lock was lost", "content": problem},
                _504={"description": "the outcome is unknown", "content": problem},
            ),
        }

    address = {"name": "address", "in": "path", "required": True, "schema": {"type": "string"}}
    found = {
        "openapi": "3.1.0",
        "info": {"title": "EnMasse HTTP gateway", "version": __version__, "license": {"name": "Apache-2.0"}},
        "security": [{}, {"basic": []}, {"bearer": []}],
        "paths": {
            "/v1/{address}/messages": {"parameters": [address], "post": post},
            "/v1/{address}/messages/next": {"parameters": [address], "post": take},
            "/v1/{address}/events": {"parameters": [address], "get": stream, "delete": unsubscribe},
            "/v1/{address}/requests": {"parameters": [address], "post": request},
            "/v1/{address}/deliveries/{token}": {
                "parameters": [address, {**address, "name": "token"}],
                "delete": settle("accept", "Accept the message"),
                "post": settle("settle", "State another outcome") | {"requestBody": {"content": outcome}},
                "put": settle("renew", "Renew the lock"),
            },
        },
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
            "schemas": {
                "Problem": {
                    "type": "object",
                    "required": ["title", "status"],
                    "properties": {
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "detail": {"type": "string"},
                        "outcome": {"enum": ["rejected", "released", "modified", "unknown"]},
                        "condition": {"type": "string"},
                    },
                }
            },
        },
    }
    return msgspec.json.encode(found)
