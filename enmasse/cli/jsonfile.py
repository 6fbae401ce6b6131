"""Change of one entry of a JSON file, for commands (enmasse/model/edits.py), and the lock of its folder."""

from __future__ import annotations

from enmasse.files import locked
from enmasse.model.edits import add, parse, remove, replace

__all__ = ["add", "locked", "parse", "remove", "replace"]
