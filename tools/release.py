"""Make a release: `make release VERSION=0.3.0` (docs/releasing.md). Two commits; nothing is tagged or pushed.

The first commit is the release: its version, the date in CHANGELOG.md, the archive of its stored forms. The second one
begins the next version, as `0.4.0.dev0`; the chart's version has the form of SemVer, `0.4.0-dev.0`.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, CHART = ROOT / "enmasse" / "__init__.py", ROOT / "charts" / "enmasse" / "Chart.yaml"
CHANGELOG = ROOT / "CHANGELOG.md"
HEADING = "## Unreleased\n"


def replace(file: Path, pattern: str, text: str) -> None:
    """Replace the one line of a file that matches."""
    new, count = re.subn(pattern, text, file.read_text(), flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"{file}: {count} lines match {pattern!r}, not one")
    file.write_text(new)


def set_version(version: str) -> None:
    """Write a version into the package and the chart, whose images are those of this version."""
    replace(PACKAGE, r'^__version__ = ".*"$', f'__version__ = "{version}"')
    replace(CHART, r"^version: .*$", f"version: {version.replace('.dev', '-dev.')}")
    replace(CHART, r"^appVersion: .*$", f"appVersion: {version}")


def commit(subject: str) -> str:
    """Commit all changes; return the name of the commit."""
    subprocess.run(["git", "add", "--all"], cwd=ROOT, check=True)
    subprocess.run(["git", "commit", "--quiet", "--message", subject], cwd=ROOT, check=True)
    return subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()


def main(version: str) -> None:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"VERSION is {version!r}: state three numbers, as in make release VERSION=0.3.0")
    if subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT):
        sys.exit("there are changes that are not committed: commit them first")
    set_version(version)
    replace(CHANGELOG, f"^{HEADING}", f"## {version} - {datetime.datetime.now(datetime.UTC):%Y-%m-%d}\n")
    subprocess.run([sys.executable, "-m", "tests.upgrade.archive"], cwd=ROOT, check=True)
    released = commit(f"Release {version}")
    major, minor, _ = version.split(".")
    following = f"{major}.{int(minor) + 1}.0"
    set_version(f"{following}.dev0")
    replace(CHANGELOG, rf"^(?=## {re.escape(version)} )", f"{HEADING}\n")
    commit(f"Development of {following} begins")
    print(f"{released} is {version}. After `.ci/run` has passed on it:")
    print(f"  git tag --annotate v{version} --message 'EnMasse {version}' {released} && git push origin v{version}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
