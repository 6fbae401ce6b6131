"""The catalogue of errors against the calls in the code, and docs/errors.md against the catalogue."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from enmasse import errors

ROOT = Path(errors.__file__).parent.parent
TAKERS = {"RequestError", "end", "marked", "StartError", "Fatal"}
CALLED = re.compile(rf"\b({'|'.join(TAKERS)})\(")


def raised() -> Iterator[tuple[str, str]]:
    """Yield (place, id) of each call that ends a command, a start or a service; "" for an id that is no literal."""
    for path in sorted(path for folder in ("enmasse", "services", "spark") for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if CALLED.search(text) else ():
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func
            name = (
                called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
            )
            if name not in TAKERS or (name == "end" and "cli" not in path.parts):
                continue
            if name == "marked" and "errors" not in ast.unparse(called) and "import marked" not in text:
                continue
            first = node.args[0]
            if isinstance(first, ast.Name) and first.id == "id":
                continue  # where the id is passed on
            yield f"{path.relative_to(ROOT)}:{node.lineno}", str(first.value) if isinstance(first, ast.Constant) else ""


@cache
def used() -> dict[str, str]:
    return {id: place for place, id in raised()}


def test_every_error_that_people_see_is_in_the_catalogue() -> None:
    assert {id: place for id, place in used().items() if id not in errors.CATALOGUE} == {}


def test_every_error_of_the_catalogue_is_used() -> None:
    assert sorted(errors.CATALOGUE.keys() - used().keys()) == []


def test_ids_are_dotted_unique_sorted_and_in_a_known_area() -> None:
    ids = [error.id for error in errors.ERRORS]
    assert ids == sorted(set(ids))
    assert all(re.fullmatch(r"[a-z-]+\.[a-z-]+\.[a-z0-9-]+", id) for id in ids)
    assert {id.split(".")[0] for id in ids} == errors.AREAS.keys()
    assert list(errors.AREAS) == sorted(errors.AREAS)
    assert all(error.meaning.endswith(".") and error.action.endswith(".") for error in errors.ERRORS)


def test_a_message_has_one_id_that_of_its_cause() -> None:
    once = errors.marked("cluster.context.missing", "no cluster")
    assert once == "no cluster [cluster.context.missing]"
    assert errors.marked("cluster.api.failed", once) == once


def test_the_page_in_docs_is_made_from_the_catalogue() -> None:
    assert (ROOT / "docs" / "errors.md").read_text() == errors.page(), "run: make event-docs"
