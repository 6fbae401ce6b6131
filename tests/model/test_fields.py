"""Fields of forms: each property of an entry has one, and the checks of entries take what it proposes."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.model import addresses, flavors
from enmasse.model.jsonfile import Document
from enmasse.model.values import FormField

EXAMPLES: dict[str, Any] = {
    "size": "10Mi", "milliseconds": 1000, "whole": 2, "number": 1.5, "boolean": True, "queue": "dead",
    "text": "localhost",
}  # fmt: skip


def entry(field: FormField, value: Any, **more: Any) -> dict[str, Any]:
    for key in reversed(field.name.split(".")):
        value = {key: value}
    return {**more, **value}


def values(field: FormField) -> list[Any]:
    return list(field.choices) if field.kind == "choice" else [EXAMPLES[field.kind]]


def test_each_property_of_an_address_has_fields_and_they_are_accepted() -> None:
    names = {each.name.partition(".")[0] for each in addresses.FIELDS}
    assert names == {*addresses.KEYS} - {"type", "store_and_forward", "multicast", "flavor"}
    known = {kind: flavors.Flavor(type=kind, template_name=f"{kind}-persisted") for kind in ("queue", "topic")}
    for field in addresses.FIELDS:
        for kind in field.types:
            for value in values(field):
                addresses.parse_address(entry(field, value, type=kind, flavor=kind), known)


@pytest.mark.parametrize("template", flavors.TEMPLATES)
def test_each_parameter_of_a_template_has_a_field_and_is_accepted(template: str) -> None:
    stated = {"type": flavors.TEMPLATES[template], "templateName": template}
    needed = {"HOST": "localhost"} if template.endswith("-external") else {}
    assert flavors.about(template).endswith(".")
    fields = flavors.fields_of(template)
    unknown = {**stated, "templateParameters": {"NONE": 1, **needed}}
    (problem,) = flavors.parse_flavors(Document("flavors.json", "{}", {"f": unknown}, []))[1]
    allowed = problem.reason.partition(" takes ")[2].split(", ")
    assert [each.name.removeprefix("templateParameters.") for each in fields] == allowed
    for field in fields:
        for value in values(field):
            made = entry(field, value, **stated)
            made["templateParameters"] = {**needed, **made["templateParameters"]}
            good, problems = flavors.parse_flavors(Document("flavors.json", "{}", {"f": made}, []))
            assert good.keys() == {"f"} and not problems, (field, problems)
