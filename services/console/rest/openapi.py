"""The OpenAPI 3.1 document, made from the operations and the types of their bodies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

import enmasse
from enmasse.api.types import Problem
from services.console.rest.api_operations import JSON, PREFIX, Operation

REF = "#/components/schemas/{name}"
PROBLEM = "application/problem+json"
_PART = re.compile(r"{(\w+)}")
_ALWAYS = (400, 500, 503)


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the document."""
    listed = list(operations)
    types = [t for each in listed for t in (each.answer, each.body) if t is not None] + [Problem]
    types += [parameter.kind for each in listed for parameter in each.parameters]
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    of = {repr(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for each in listed:
        paths.setdefault(PREFIX + each.path, {})[each.method.lower()] = _operation(each, of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "EnMasse",
            "version": enmasse.__version__,
            "description": "Addresses, messages, connections and users of a suite (docs/contracts.md, Console).",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"basic": []}, {"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "enmasse-session"},
            },
        },
    }


def _operation(each: Operation, of: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": each.id, "summary": each.text, "tags": [each.tag or "suite"]}
    parts = [
        {"name": part, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for part in _PART.findall(each.path)
    ]
    given = [
        {
            "name": parameter.name,
            "in": parameter.where,
            "required": parameter.required,
            "description": parameter.text,
            "schema": of[repr(parameter.kind)],
        }
        for parameter in each.parameters
    ]
    if parts or given:
        found["parameters"] = parts + given
    if each.body is not None:
        content = {kind: {"schema": of[repr(each.body)]} for kind in each.body_types}
        found["requestBody"] = {"required": True, "content": content}
    done: dict[str, Any] = {"description": "done"}
    if each.answer is not None:
        done["content"] = {JSON: {"schema": of[repr(each.answer)]}}
        if each.watched:
            done["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    statuses = {*_ALWAYS, *each.errors, *(() if each.public else (401, 403, 429))}
    if parts:
        statuses.add(404)
    if each.body is not None:
        statuses |= {413, 415}
    problem = {"content": {PROBLEM: {"schema": of[repr(Problem)]}}}
    found["responses"] = {
        str(each.status): done,
        **({"201": {**done, "description": "made"}} if each.method == "PUT" else {}),
        **({"200": done, "202": {**done, "description": "begun"}} if each.status == 202 else {}),
        **{str(status): {"description": "a problem", **problem} for status in sorted(statuses)},
    }
    if each.public:
        found["security"] = []
    return found
