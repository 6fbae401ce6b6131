"""Check the message of a commit: `tools/commit_subject.py FILE`, called by git (.pre-commit-config.yaml).

The subject says one thing in plain words, in less than 72 characters; a body begins after an empty line.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LONGEST = 71
EMPTY = re.compile(r"(x+|wip|fix(es|up)?|update|changes?|misc|stuff|tmp|temp)\W*", re.IGNORECASE)
MADE = re.compile(r"(fixup|squash|amend)! |Merge |Revert ")
"""Subjects that git writes; those with an exclamation mark go when the branch is put in order."""


def faults(message: str) -> list[str]:
    """Return what is wrong with a message, and what to do."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if MADE.match(subject):
        return []
    found = []
    if not subject.strip() or EMPTY.fullmatch(subject):
        found.append(f"the subject {subject!r} does not state the change: name what is otherwise now")
    elif subject[0].islower() and subject.split()[0].isalpha():
        found.append("the subject begins with a small letter: write it as a sentence")
    if len(subject) > LONGEST:
        found.append(f"the subject has {len(subject)} characters: {LONGEST} are the most; the body has room")
    if subject.endswith("."):
        found.append("the subject ends with a full stop: leave it out")
    if ";" in subject:
        found.append("the subject has two parts: make two commits, or name what both parts are for")
    if len(lines) > 1 and lines[1].strip():
        found.append("the second line is not empty: it divides the subject from the body")
    return found


if __name__ == "__main__":
    wrong = faults(Path(sys.argv[1]).read_text())
    sys.exit("\n".join(f"commit message: {fault}" for fault in wrong) or 0)
