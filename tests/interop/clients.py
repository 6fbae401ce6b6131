"""Our small programs on AMQP clients of other families: built once per state of their sources.

`python -m tests.interop.clients` builds them: the first time their libraries are fetched, which takes as long as it
takes and is no test's business.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.page import Program, programs

SOURCES = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "enmasse-interop"


class Broken(Exception):
    """A client cannot be built; says what to do."""


def protonj2() -> list[str]:
    """The command of the program on Apache Qpid protonj2 (Java), which Maven fetches."""
    return _java("protonj2")


def jms(version: str) -> list[str]:
    """The command of the program on this version of Apache Qpid JMS (Java), which Maven fetches."""
    return _java("jms", f"qpid.version={version}")


def doors() -> list[str]:
    """The command of the program on Californium and Vert.x' STOMP client (Java), which Maven fetches."""
    return _java("doors")


def goamqp() -> list[str]:
    """The command of the program on Azure's go-amqp, built by Go."""
    return _go("goamqp")


def gohttp() -> list[str]:
    """The command of the program on Go's net/http."""
    return _go("gohttp")


def _go(name: str) -> list[str]:
    go = _needs("go", "golang-go")
    command = [go, "build", "-buildvcs=false", "-o", "interop", "."]
    folder = _built(name, lambda folder: _run(command, folder, attempts=3))
    return [str(folder / "interop")]


def rhea() -> list[str]:
    """The command of the program on rhea (JavaScript), which npm fetches."""
    node = _needs("node", "nodejs")
    npm = _needs("npm", "npm")
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    folder = _built("rhea", lambda folder: _run(command, folder, attempts=3))
    return [node, str(folder / "main.js")]


def stompjs() -> Path:
    """The file of @stomp/stompjs for web pages, which npm fetches."""
    npm = _needs("npm", "npm")
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    folder = _built("stompjs", lambda folder: _run(command, folder, attempts=3))
    return folder / "node_modules/@stomp/stompjs/bundles/stomp.umd.js"


def fe2o3() -> list[str]:
    """The command of the program on fe2o3-amqp, built by Rust's Cargo; the library itself is built once."""
    cargo = _needs("cargo", "cargo-web")
    libraries = CACHE / "cargo"

    def build(folder: Path) -> None:
        with (CACHE / "cargo.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # other states of the sources have their program in the same place
            _run([cargo, "build", "--quiet", "--target-dir", str(libraries)], folder, attempts=3)
            shutil.copy(libraries / "debug" / "interop", folder / "interop")

    return [str(_built("fe2o3", build) / "interop")]


def moto() -> Path:
    """The folder with the packages of moto, whose S3 server tests start: another release of dateutil than ours."""

    def build(folder: Path) -> None:
        uv = str(Path(sys.executable).with_name("uv"))
        python = ["--python", sys.executable, "--target", str(folder / "packages")]
        _run(
            [uv, "pip", "install", "--quiet", "--require-hashes", *python, "-r", "requirements.txt"], folder, attempts=3
        )

    return _built("moto", build, sys.version) / "packages"


FAMILIES: dict[str, Callable[[], list[str]]] = {
    "protonj2": protonj2,
    "goamqp": goamqp,
    "rhea": rhea,
    "fe2o3": fe2o3,
}
"""The programs that know the scenarios of test_clients.py."""
DOORS: dict[str, Callable[[], list[str]]] = {"Californium and Vert.x": doors, "Go's net/http": gohttp}
"""The programs of test_doors.py."""
JMS_VERSIONS = ("2.6.1", "2.7.0")
"""Of Qpid JMS; its program has scenarios of its own (test_jms.py)."""
TOOLS = {"mvn": "maven", "npm": "npm", "go": "golang-go"}
"""The commands that fetch libraries for the programs of the documentation, and their Debian packages."""


def _java(name: str, *properties: str) -> list[str]:
    """The command of a Java program whose libraries Maven fetches; `properties` are those of its pom.xml."""
    javac = _needs("javac", "openjdk-17-jdk-headless")
    maven = _needs("mvn", "maven")

    def build(folder: Path) -> None:
        options = ["-B", "-ntp", "-q", f"-Dmaven.repo.local={CACHE / 'maven'}", *(f"-D{p}" for p in properties)]
        _run([maven, *options, "dependency:copy-dependencies"], folder, attempts=3)
        sources = [str(file) for file in folder.rglob("*.java")]
        _run([javac, "--release", "17", "-cp", "target/lib/*", "-d", "target/classes", *sources], folder)

    target = _built(name, build, *properties) / "target"
    flags = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    return ["java", *flags, "-cp", f"{target / 'classes'}:{target / 'lib'}/*", "enmasse.interop.Main"]


def _needs(program: str, package: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise Broken(f"{program} is missing: install it (Debian: {package}; .ci/run does), and run again")
    return found


def documented(program: Program) -> Path:
    """A folder with the files of a program of the documentation, its libraries fetched by the page's own commands."""
    for command in program.once:
        _needs(command.split()[0], TOOLS[command.split()[0]])
    files = {name: text.encode() for name, text in program.files.items()}
    environment = {**os.environ, "MAVEN_OPTS": f"-Dmaven.repo.local={CACHE / 'maven'}"}

    def build(folder: Path) -> None:
        for command in program.once:
            _run(command.split(), folder, attempts=3, environment=environment)

    return _cached("documented", files, build, *program.once)


def _built(name: str, build: Callable[[Path], None], *variant: str) -> Path:
    """The folder that holds the program of these sources, in this variant."""
    sources = SOURCES / name
    files = sorted(file for file in sources.rglob("*") if file.is_file())
    return _cached(name, {str(file.relative_to(sources)): file.read_bytes() for file in files}, build, *variant)


def _cached(name: str, files: Mapping[str, bytes], build: Callable[[Path], None], *variant: str) -> Path:
    """A folder with these files in which `build` has run: once for each content of the files and each variant."""
    digest = hashlib.sha256("\0".join(variant).encode())
    for path, content in files.items():
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    done = CACHE / f"{name}-{digest.hexdigest()[:16]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{done.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who needs it while another run builds it waits for that
        if not done.exists():
            with tempfile.TemporaryDirectory(dir=CACHE, prefix=f"{name}-") as scratch:
                fresh = Path(scratch) / "build"
                for path, content in files.items():
                    (fresh / path).parent.mkdir(parents=True, exist_ok=True)
                    (fresh / path).write_bytes(content)
                build(fresh)
                fresh.rename(done)
    return done


def _run(command: list[str], folder: Path, attempts: int = 1, environment: Mapping[str, str] | None = None) -> None:
    """`attempts`: of what fetches; what has come stays, a repository that did not answer may do so the next time."""
    for _ in range(attempts):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return
    raise Broken(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")


def main() -> None:
    builds: dict[str, Callable[[], object]] = {**FAMILIES, **DOORS, "moto (an S3 server)": moto}
    builds.update({f"Qpid JMS {version}": partial(jms, version) for version in JMS_VERSIONS})
    builds.update({f"docs: {one.name}": partial(documented, one) for one in programs("clients.md") if one.once})
    for name, build in builds.items():
        print(f"building the client program on {name} (the first time its libraries are fetched) ...", flush=True)
        try:
            build()
        except Broken as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
