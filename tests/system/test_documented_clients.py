"""The examples of docs/clients.md, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from enmasse.testing import Suite
from tests.system.seeing import wait_address

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(suite: Suite, code: str) -> None:
    assert "amqp://127.0.0.1:5672" in code and "assert" in code
    # Seconds that are enough where somebody tries the example are not on a machine that does ten other things.
    code = code.replace("amqp://127.0.0.1:5672", suite.url).replace("timeout=10", "timeout=60")
    exec(compile(code, str(PAGE), "exec"), {"__name__": "example"})
    for name in ("orders", "payments", "news"):
        wait_address(suite, name, messages=0, consumers=0)
