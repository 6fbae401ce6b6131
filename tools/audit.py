"""Asks pip-audit for known vulnerabilities of the packages in requirements.lock, in the advisory database OSV.

Without access to the database that is stated, and is no failure: a machine without network can be checked for the rest.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"
COMMAND = ("-m", "pip_audit", "--disable-pip", "--strict", "--progress-spinner=off", "--vulnerability-service=osv")
UNREACHABLE = re.compile(r"ConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|ServiceError")
NOT_CHECKED = f"pip-audit: the advisory database is not reachable; {LOCK.name} is not checked"


def judge(status: int, output: str, errors: str) -> tuple[int, str]:
    """Return the exit status, and what is printed. `status`, `output`, `errors`: of pip-audit."""
    if status and not output.strip() and UNREACHABLE.search(errors):
        return 0, NOT_CHECKED
    return status, (output + errors).strip()


def main() -> int:
    command = [sys.executable, *COMMAND, "--requirement", str(LOCK)]
    done = subprocess.run(command, capture_output=True, text=True)
    status, text = judge(done.returncode, done.stdout, done.stderr)
    print(text)
    return status


if __name__ == "__main__":
    sys.exit(main())
