"""Checks the JavaScript of the console's page: style and format by Biome, types (JSDoc) by TypeScript, and that no line
is too long: Biome does not break lines of templates.

usage: tools/check_page.py [--fix]

npm fetches both into the user's cache, once for each state of tools/page/package-lock.json. Without npm this is stated,
and is no failure.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOOLS = Path(__file__).parent / "page"
PAGE = Path(__file__).parents[1] / "services" / "console" / "page"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "enmasse-page"
TYPES = {"preact": "preact", "hooks": "preact/hooks", "htm": "htm"}
"""Module of the folder `vendor` → package of npm that has its types."""


MOST_CHARACTERS = 120


def packages(npm: str) -> Path:
    """Return the folder of the tools' packages. Raises CalledProcessError."""
    lock = TOOLS / "package-lock.json"
    folder = CACHE / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            for file in (lock, TOOLS / "package.json"):
                shutil.copy(file, folder)
            subprocess.run(
                [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True
            )
            (folder / "done").touch()
    return folder / "node_modules"


def check_types(node: str, modules: Path) -> bool:
    """Return whether the types are right, of a copy whose vendor modules are those of npm."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        shutil.copytree(PAGE, folder / "page")
        for name in ("tsconfig.json", "globals.d.ts"):
            shutil.copy(TOOLS / name, folder)
        (folder / "node_modules").symlink_to(modules)
        vendor = folder / "page" / "vendor"
        for module, package in TYPES.items():
            (vendor / f"{module}.mjs").unlink()
            what = "{ default }" if package == "htm" else "*"
            (vendor / f"{module}.d.mts").write_text(f'export {what} from "{package}";\n')
        return subprocess.run([node, modules / "typescript" / "bin" / "tsc", "-p", folder], cwd=folder).returncode == 0


def long_lines() -> list[str]:
    """Return the places of lines that are too long."""
    files = sorted(path for path in PAGE.rglob("*.js") if "vendor" not in path.parts)
    return [
        f"{path.relative_to(PAGE)}:{number}: {len(line)} characters, {MOST_CHARACTERS} at most"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MOST_CHARACTERS
    ]


def main() -> int:
    """Return the exit status."""
    too_long = long_lines()
    if too_long:
        print(*too_long, sep="\n")
        return 1
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        print("the console's page: not checked, because npm is not on PATH (Debian: nodejs, npm)")
        return 0
    try:
        modules = packages(npm)
    except subprocess.CalledProcessError as error:
        print(f"the console's page: not checked, because npm ends with status {error.returncode}", file=sys.stderr)
        return 1
    biome: list[str | Path] = [
        node,
        modules / "@biomejs" / "biome" / "bin" / "biome",
        "check",
        f"--config-path={TOOLS / 'biome.json'}",
    ]
    fix = ["--write"] if "--fix" in sys.argv[1:] else []
    style = subprocess.run([*biome, *fix, "--error-on-warnings", "--log-level=warn", PAGE]).returncode == 0
    return 0 if check_types(node, modules) and style else 1


if __name__ == "__main__":
    sys.exit(main())
