"""Check of wording: docstrings, comments, messages and documentation in plain technical English.

    python tools/words.py                   findings in rooms above their ceiling; exit status 1 if there are any
    python tools/words.py --list [PATH …]   all findings, or those below these paths
    python tools/words.py --lower           set each ceiling that is too high to what was found

A finding is a docstring that opens without its subject, an idiom that technical English has a term for, or a name
made of such an idiom. `OPENINGS`, `IDIOMS` and `NAMES` give the better term. `words.ceilings` has the number of
findings that each room may have; it may only go down. A finding that is good English stays, within the ceiling.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CEILINGS = Path(__file__).with_suffix(".ceilings")
CHECKED = ("enmasse", "services", "spark", "benchmarks", "demo", "docs", "README.md", "CONTRIBUTING.md")
SKIPPED = (
    "docs/decisions/",
    "docs/releases/",
    "docs/mqtt-clauses.md",
)  # the first two stay as written; clauses are quoted
MESSAGE = 20  # characters from which a string with a blank in it is text for people

OPENINGS = {
    "it its they their these those that": "name the thing",
    "what whatever where": "name the thing, or begin with a verb: Return …",
    "who whose whom whoever nobody somebody anybody": "name the role: the client, the caller, the owner",
    "of so such than anew nothing and or but": "begin with the subject or a verb",
    "one that|ones|the same|all that|not what": "name the thing",
}

_ROLES = "has have had is are asks asked holds sends sent comes came takes took reads writes wrote listens dials"
_ROLES += " subscribes publishes publish wants gives gave made makes calls leads may can must does did"
_THINGS = "is was are were has have had"
_DONE = "done made there wanted asked given known left gone lost kept said"

IDIOMS = {
    r"(is|are|was|were|be|been|being|not|yet) told": "is notified / reported",
    r"told (of|about|apart|by|to)|tells? (of|nobody|apart)": "reported / distinguished",
    r"anew": "again / from the beginning",
    r"(is|are|was|were|be) over(?! (the|a|an|its|any|all|one|several|\d|[A-Z])\b)": "has ended / has expired",
    r"(no|any) more(?=\s*([.,;:)]|$))": "no longer",
    r"so (many|much|long)(?! (as|that)\b)": "state the quantity",
    rf"(who|whoever|anyone who|those who) ({_ROLES.replace(' ', '|')})": "name the role: the client, the caller",
    r"nobody|somebody|anybody|everybody": "name the role: no client, another process, every follower",
    r"(is|are) (?-i:none)": "is not a valid … / does not exist",
    r"(lies?|lay) (in|on|at|below|under|there|beside|behind|with|idle)": "is in / is stored in / is below",
    r"for ever": "indefinitely",
    r"(comes?|came|coming) (again|back)": "is redelivered / returns / reconnects",
    r"(goes|go|went|going) (on|away)(?! to\b)": "continues / disconnects / is removed",
    r"said|says? so": "states / reports / names",
    r"hears?|heard": "receives / is notified",
    r"wish(es|ed)?": "desired state / request",
    r"lets? go|gave up on": "releases",
    r"besides": "also / in addition",
    rf"(what|all that|that which) ({_THINGS.replace(' ', '|')}) ({_DONE.replace(' ', '|')}|to be)": "name the thing",
    r"at its (end|side)|of its own accord": "rephrase: when … ends / by itself",
    r"as (it|they) (is|are|was|were)": "unchanged",
    r"all the same|as well as it can|well again": "nevertheless / has recovered",
    r"see to|sees to|seen to|saw to": "handles / ensures",
}

NAMES = {
    "lies": "state the fact: placement_changed",
    "told": "notified, reported",
    "doom doomed hopeless": "the state in the field's terms: expired, unreachable",
    "house": "Cluster, Installation, Process",
    "wish wishes": "desired, request",
    "anew": "again",
    "nobody somebody who": "the role",
}


def _words(entry: str) -> str:
    return "|".join(re.escape(each) for each in (entry.split("|") if "|" in entry else entry.split()))


_OPENING = [(re.compile(rf"({_words(entry)})\b", re.I), better) for entry, better in OPENINGS.items()]
_SPACED = {pattern.replace(" ", r"\s+"): better for pattern, better in IDIOMS.items()}
_IDIOM = [(re.compile(rf"\b(?:{pattern})(?<=\w)(?!\w)", re.I), better) for pattern, better in _SPACED.items()]
_ANY = re.compile("|".join(pattern.pattern for pattern, _ in _IDIOM), re.I)
_NAME = {word: better for words, better in NAMES.items() for word in words.split()}


@dataclass(frozen=True, slots=True)
class Finding:
    """A place, the words found there, what to write instead, and the text around them."""

    file: str
    line: int
    found: str
    better: str
    text: str

    def __str__(self) -> str:
        return f'{self.file}:{self.line}: "{self.found}" ({self.better}): {self.text}'


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text: the line it begins at, its kind (docstring, comment, message, name, doc), the text itself."""

    line: int
    kind: str
    text: str


def room(file: str) -> str:
    """Return the room of a file: a package of enmasse or services, or the folder or file at the top."""
    parts = file.split("/")
    return "/".join(parts[:2]) if parts[0] in ("enmasse", "services") and len(parts) > 2 else parts[0]


def findings(file: str, source: str) -> Iterator[Finding]:
    """Yield the findings in a file's text."""
    for each in _paragraphs(source) if file.endswith(".md") else _pieces(source):
        if each.kind == "name":
            for part in re.findall(r"[A-Z]?[a-z]+", each.text):
                if better := _NAME.get(part.lower()):
                    yield Finding(file, each.line, part, better, f"the name {each.text}")
            continue
        if each.kind == "docstring":
            for pattern, better in _OPENING:
                if found := pattern.match(each.text):
                    yield Finding(file, each.line, found[0], better, _around(each.text, 0))
        if not _ANY.search(each.text):
            continue
        for pattern, better in _IDIOM:
            for found in pattern.finditer(each.text):
                line = each.line + each.text.count("\n", 0, found.start())
                yield Finding(file, line, " ".join(found[0].split()), better, _around(each.text, found.start()))


def _around(text: str, at: int) -> str:
    start = max(0, at - 40)
    return " ".join(text[start : start + 110].split())


def _paragraphs(source: str) -> Iterator[Text]:
    """Yield the lines of documentation outside code, as paragraphs, so that an idiom is found across lines."""
    first, lines, fence = 1, list[str](), False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        fence ^= line.startswith("```")
        if fence or not line.strip() or line.startswith(("    ", "```")):
            if lines:
                yield Text(first, "doc", re.sub(r"`[^`\n]*`", "``", "\n".join(lines)))
            lines = []
        else:
            first = first if lines else number
            lines.append(line)


_TOKEN = re.compile(
    r"""
    (?P<comment>\#[^\n]*)
    | (?<![A-Za-z0-9_]) [A-Za-z]{0,2}
      (?: (?P<triple>"{3}|\'{3}) (?P<long>(?:\\.|.)*?) (?P=triple)
        | (?P<quote>["\']) (?P<short>(?:\\.|[^\\\n])*?) (?P=quote) )
    | ^[ ]*(?:async[ ]+)?(?:def|class)[ ]+(?P<name>\w+)
    """,
    re.S | re.X | re.M,
)


def _pieces(source: str) -> Iterator[Text]:
    """Yield the docstrings, messages, comments and names of a module; comments of consecutive lines in one piece.

    A lexer of its own: tokenize and ast take five times as long for the whole repository.
    """
    line, seen, remarks = 1, 0, list[tuple[int, str]]()
    for token in _TOKEN.finditer(source):
        line += source.count("\n", seen, token.start())
        seen = token.start()
        if (comment := token["comment"]) is not None:
            if remarks and remarks[-1][0] != line - 1:
                yield _joined(remarks)
                remarks = []
            remarks.append((line, comment.lstrip("# ")))
        elif (name := token["name"]) is not None:
            yield Text(line, "name", name)
        elif (text := token["long"]) is not None and not source[source.rfind("\n", 0, seen) + 1 : seen].strip():
            yield Text(line, "docstring", text)
        elif (text := text or token["short"] or "") and len(text) > MESSAGE and " " in text.strip():
            yield Text(line, "message", text)
    if remarks:
        yield _joined(remarks)


def _joined(remarks: list[tuple[int, str]]) -> Text:
    return Text(remarks[0][0], "comment", "\n".join(text for _, text in remarks))


def checked_files(paths: list[str]) -> list[str]:
    """Return the files of the repository that are checked, below any of these paths."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *(paths or CHECKED)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    return sorted(
        name
        for name in set(listed)
        if name.endswith((".py", ".md")) and name.startswith(CHECKED) and not name.startswith(SKIPPED)
        if (ROOT / name).exists()
    )


def ceilings() -> dict[str, int]:
    """Return how many findings each room may have; a room that is not listed may have none."""
    rows = (line.split() for line in CEILINGS.read_text().splitlines())
    return {name: int(number) for name, number in rows}


def main() -> int:
    """Check the wording as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print all findings")
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to what was found")
    parser.add_argument("paths", nargs="*")
    options = parser.parse_args()
    found = [each for name in checked_files(options.paths) for each in findings(name, (ROOT / name).read_text())]
    if options.list or options.paths:
        for each in found:
            print(each)
        print(f"{len(found)} findings")
        return 0
    return _compare(found, Counter(room(each.file) for each in found), options.lower)


def _compare(found: list[Finding], counts: Counter[str], lower: bool) -> int:
    """Report rooms above their ceiling, and below it if it is to be lowered. Return the exit status."""
    limits = ceilings()
    above = {name for name, count in counts.items() if count > limits.get(name, 0)}
    below = {name for name, limit in limits.items() if counts[name] < limit}
    for each in found:
        if room(each.file) in above:
            print(each)
    for name in sorted(above):
        print(f"{name}: {counts[name]} findings of wording, {limits.get(name, 0)} may be: see tools/words.py")
    if lower:
        kept = {name: min(limit, counts[name]) for name, limit in sorted(limits.items()) if counts[name]}
        CEILINGS.write_text("".join(f"{name} {limit}\n" for name, limit in kept.items()))
    elif below:
        fewer = sum(limits[name] - counts[name] for name in below)
        print(f"words: {fewer} findings fewer than allowed; tools/words.py --lower lowers the ceilings")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
