"""tools/audit.py: what fails, and what is only stated."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("audit", Path(__file__).parent.parent / "tools" / "audit.py")
assert _spec is not None and _spec.loader is not None
audit = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(audit)

TABLE = "Name    Version ID     Fix Versions\n------- ------- ------ ------------\naiohttp 3.14.5  TEST-1 99\n"
OFFLINE = "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.osv.dev', port=443): Max retries exceeded"


def test_an_advisory_is_a_failure_and_is_printed() -> None:
    status, text = audit.judge(1, TABLE, "Found 1 known vulnerability in 1 package\n")
    assert status == 1 and "TEST-1" in text
    assert audit.judge(1, TABLE, OFFLINE)[0] == 1


def test_no_advisory() -> None:
    assert audit.judge(0, "", "No known vulnerabilities found\n") == (0, "No known vulnerabilities found")


def test_without_the_database_that_is_stated() -> None:
    assert audit.judge(1, "", f"Traceback (most recent call last):\n{OFFLINE}") == (0, audit.NOT_CHECKED)


def test_other_errors_are_failures() -> None:
    for errors in ("No module named pip_audit", "ERROR:pip_audit._cli:invalid requirements input: requirements.lock"):
        assert audit.judge(1, "", errors) == (1, errors)
