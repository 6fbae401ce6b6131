"""JSON schemas of what an API server takes, from its own description: for kubeconform, which then needs no internet."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kubernetes.binaries import binary

Schema = dict[str, Any]

_REFERENCE = "#/definitions/"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_LOCATION = "{{.ResourceKind}}{{.KindSuffix}}.json"


class Invalid(AssertionError):
    """Manifests that an API server would refuse or warn of; says which and why."""


def write(openapi: Mapping[str, Any], folder: Path) -> int:
    """Write a file for each type of resource in this OpenAPI 2 description; returns how many."""
    folder.mkdir(parents=True, exist_ok=True)
    definitions = openapi["definitions"]
    count = 0
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            schema = _closed(definition, definitions, (name,))
            if "kind" not in schema.get("properties", {}):
                continue  # options of requests
            version = "/".join(part for part in (kind["group"], kind["version"]) if part)
            schema["properties"]["apiVersion"] = {"const": version}
            schema["properties"]["kind"] = {"const": kind["kind"]}
            schema["required"] = sorted({"apiVersion", "kind", *schema.get("required", ())})
            parts = [kind["kind"], kind["group"].partition(".")[0], kind["version"]]
            file = "-".join(part.lower() for part in parts if part) + ".json"
            (folder / file).write_text(json.dumps(schema))
            count += 1
    return count


def check(manifests: str, folder: Path) -> int:
    """How many resources these manifests (YAML) hold. Raises Invalid: an unknown type, an unknown or wrong field."""
    options = ["-strict", "-summary", "-output", "json", "-schema-location", f"{folder}/{_LOCATION}"]
    done = subprocess.run([binary("kubeconform"), *options, "-"], input=manifests, capture_output=True, text=True)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        raise Invalid(done.stdout + done.stderr) from None
    problems = [f"{one['kind']} {one['name']}: {one['msg']}" for one in found["resources"]]
    if problems or done.returncode:
        raise Invalid("\n".join(problems) or done.stderr)
    return int(found["summary"]["valid"])


def _closed(schema: Schema, definitions: Mapping[str, Schema], within: tuple[str, ...]) -> Schema:
    """The schema with what it refers to put in, and with no other fields than those it names."""
    if (reference := schema.get("$ref")) is not None:
        name = reference.removeprefix(_REFERENCE)
        if name == _QUANTITY:
            return {"type": ["string", "number"]}
        if name in within:
            return {}  # of a type that holds itself, only the first level is checked
        return _closed(definitions[name], definitions, (*within, name))
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    closed: Schema = {name: schema[name] for name in ("type", "required", "enum") if name in schema}
    if "items" in schema:
        closed["items"] = _closed(schema["items"], definitions, within)
    if isinstance(values := schema.get("additionalProperties"), dict):
        closed["additionalProperties"] = _closed(values, definitions, within)
    if "properties" in schema:
        needed = schema.get("required", ())
        properties = {name: _closed(one, definitions, within) for name, one in schema["properties"].items()}
        closed["properties"] = {name: one if name in needed else _or_null(one) for name, one in properties.items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed.setdefault("additionalProperties", False)
    return closed


def _or_null(schema: Schema) -> Schema:
    """A field that may be left out may also be null."""
    kinds = schema.get("type")
    if kinds is None or "enum" in schema:
        return schema
    return {**schema, "type": [*(kinds if isinstance(kinds, list) else [kinds]), "null"]}
