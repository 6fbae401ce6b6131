from __future__ import annotations

from enmasse.text import counted


def test_one_is_singular_and_all_others_are_plural() -> None:
    assert [counted(n, "queue") for n in (0, 1, 2)] == ["0 queues", "1 queue", "2 queues"]
