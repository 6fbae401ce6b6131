"""The check of wording: what it finds, and that ceilings only go down."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("words", Path(__file__).parent.parent / "tools" / "words.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "words", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CEILINGS", tmp_path / "words.ceilings")
    return module


SOURCE = '''
"""What a message keeps."""

def lies(queue):
    """Return the queue, which nobody
    reads any
    more."""
    text = "# not a comment, and nobody reads it"  # it comes
    # again, anew
    return text
'''


def test_openings_idioms_and_names_are_found_at_their_lines(words: ModuleType) -> None:
    found = [(each.line, each.found) for each in words.findings("enmasse/model/a.py", SOURCE)]
    assert sorted(found) == [
        (2, "What"), (4, "lies"), (5, "nobody"), (6, "any more"), (8, "comes again"), (8, "nobody"), (9, "anew"),
    ]  # fmt: skip


def test_code_in_documentation_is_not_checked(words: ModuleType) -> None:
    text = "Run this:\n\n    echo nobody\n\n```\nnobody\n```\n\nThe queue `nobody` is\nover.\n"
    assert [(each.line, each.found) for each in words.findings("docs/a.md", text)] == [(9, "is over")]


def test_a_room_above_its_ceiling_fails_and_is_named(words: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    found = list(words.findings("enmasse/model/a.py", SOURCE))
    words.CEILINGS.write_text(f"enmasse/model {len(found) - 1}\n")
    assert words._compare(found, words.Counter({"enmasse/model": len(found)}), lower=False) == 1
    printed = capsys.readouterr().out
    assert 'enmasse/model/a.py:9: "anew" (again' in printed
    assert f"enmasse/model: {len(found)} findings" in printed


def test_ceilings_are_lowered_and_never_raised(words: ModuleType) -> None:
    words.CEILINGS.write_text("docs 5\nenmasse/model 3\nspark 4\n")
    assert words._compare([], words.Counter({"docs": 2, "enmasse/model": 9}), lower=True) == 1
    assert words.ceilings() == {"docs": 2, "enmasse/model": 3}
