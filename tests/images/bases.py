"""What images stand on, made of this machine's own files: its Python, its Java, its redis-server, and the libraries
that these load. Names in the store: `enmasse-test/{build,python,java}`, `enmasse/redis:test`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.images.store import has, podman

PYTHON, JAVA, REDIS = "localhost/enmasse-test/python:3", "localhost/enmasse-test/java:2", "localhost/enmasse/redis:test"
BUILD = "localhost/enmasse-test/build:1"
"""The same Python, for the stages in which this machine's tools are mounted."""
ALL = (BUILD, PYTHON, JAVA, REDIS)
JAVA_HOME = "/opt/java/openjdk"
_LEFT_OUT = {
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "site-packages",
    "__pycache__",
    "ensurepip",
}
_SHELL = (
    "/bin/sh",
    "/bin/bash",
    "/bin/cat",
    "/bin/ls",
    "/bin/sleep",
    "/usr/bin/env",
    "/usr/bin/dirname",
    "/usr/bin/basename",
)
_TOOLS = ("/bin/chmod", "/usr/bin/head", "/usr/bin/id", "/bin/ln", "/bin/mkdir", "/bin/mv", "/bin/rm", "/bin/uname")
"""Of GNU coreutils: what Spark's scripts and Hadoop's file system call."""
_EVERYWHERE = ("libnss_*.so.2", "libstdc++.so.6", "libgcc_s.so.1")
"""What every base has that is made for more than one program."""
_MODULES = (
    "java.se", "jdk.unsupported", "jdk.crypto.ec", "jdk.crypto.cryptoki", "jdk.management", "jdk.security.auth",
    "jdk.zipfs", "jdk.net", "jdk.charsets", "jdk.localedata", "jdk.httpserver", "jdk.jfr", "jdk.naming.dns",
    "jdk.incubator.vector",
)  # fmt: skip


def ensure() -> None:
    """Makes the bases that the store lacks."""
    for name, make in ((BUILD, python), (PYTHON, _python_with_tools), (JAVA, _java), (REDIS, _redis)):
        if not has(name):
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder)
                skeleton(root)
                changes = make(root)
                _import(root, name, changes)


def _import(root: Path, name: str, changes: Iterable[str]) -> None:
    tar = subprocess.run(["tar", "-C", str(root), "--numeric-owner", "--owner=0", "--group=0", "-cf", "-", "."],
                         capture_output=True, check=True).stdout  # fmt: skip
    podman("import", "--quiet", *(f"--change={each}" for each in changes), "-", name, stdin=tar)


def skeleton(root: Path) -> None:
    """Folders, the files of users and names, certificates, and a shell with what scripts of programs call."""
    for folder in ("usr/bin", "usr/lib", "usr/lib64", "etc/ssl/certs", "tmp", "proc", "sys", "dev", "root", "var/lib"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for link in ("bin", "lib", "lib64"):
        (root / link).symlink_to(f"usr/{link}")
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():
        shutil.copy(certificates, root / "etc/ssl/certs")
    _programs(root, *(each for each in _SHELL if Path(each).exists()))
    shared = (each for pattern in _EVERYWHERE for each in Path("/lib/x86_64-linux-gnu").glob(pattern))
    _libraries(root, *map(str, shared), copy=True)


def python(root: Path) -> list[str]:
    """This machine's Python, at its own path."""
    prefix, version = Path(sys.base_prefix), sysconfig.get_python_version()
    library = prefix / "lib" / f"python{version}"

    def left_out(_: str, names: list[str]) -> set[str]:
        return {each for each in names if each in _LEFT_OUT or each.startswith("config-")}

    shutil.copytree(library, root / str(library)[1:], ignore=left_out, symlinks=True)
    (root / str(library)[1:] / "site-packages").mkdir()
    (root / str(prefix)[1:] / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(prefix / "bin" / f"python{version}", root / str(prefix)[1:] / "bin")
    for shared in (prefix / "lib").glob(f"libpython{version}*.so*"):
        shutil.copy(shared, root / str(shared)[1:])
    for name in ("python3", "python"):
        (root / str(prefix)[1:] / "bin" / name).symlink_to(f"python{version}")
    _libraries(root, str(prefix / "bin" / f"python{version}"), *(str(each) for each in library.rglob("*.so")))
    _readable(root)
    return [f"ENV PATH={prefix}/bin:/usr/bin"]


def _python_with_tools(root: Path) -> list[str]:
    _programs(root, *_TOOLS)
    return python(root)


def _java(root: Path) -> list[str]:
    home = root / JAVA_HOME[1:]
    home.parent.mkdir(parents=True)
    smaller = ("--strip-debug", "--no-header-files", "--no-man-pages", "--compress=1")
    linking = ["jlink", "--add-modules", ",".join(_MODULES), *smaller, "--output", str(home)]
    subprocess.run(linking, check=True, capture_output=True)
    _libraries(root, str(home / "bin/java"), *(str(each) for each in home.rglob("*.so")))
    (root / "usr/bin/java").symlink_to(f"{JAVA_HOME}/bin/java")
    _readable(root)
    return ["ENV PATH=/usr/bin", f"ENV JAVA_HOME={JAVA_HOME}"]


def _redis(root: Path) -> list[str]:
    server = shutil.which("redis-server")
    assert server is not None
    _programs(root, str(Path(server).resolve()))
    name = Path(server).resolve().name
    if name != "redis-server":  # Debian's is redis-check-rdb, which looks at the name it was called by
        shutil.copy(root / "usr/bin" / name, root / "usr/bin/redis-server")
    (root / "data").mkdir()
    (root / "data").chmod(0o777)
    return ["ENV PATH=/usr/bin", "USER 999:0", "WORKDIR /data", 'ENTRYPOINT ["redis-server"]']


def _programs(root: Path, *programs: str) -> None:
    for program in programs:
        shutil.copy(program, root / "usr/bin" / Path(program).name)
    _libraries(root, *programs)


def loaded(*files: str) -> set[str]:
    """The paths of the shared libraries that these load."""
    listed = subprocess.run(["ldd", *files], capture_output=True, check=False, text=True).stdout
    return set(re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", listed, re.MULTILINE))


def _libraries(root: Path, *files: str, copy: bool = False) -> None:
    """Copies the shared libraries that these load (`copy`: and themselves)."""
    for library in loaded(*files) | (set(files) if copy else set()):
        place = library if library.startswith("/usr/") else re.sub(r"^/(lib(?:64)?)/", r"/usr/\1/", library)
        target = root / place[1:]
        if str(root) in library or target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def _readable(root: Path) -> None:
    """Any uid reads everything: Python may lie in the home of root."""
    for folder in [root, *(each for each in root.rglob("*") if each.is_dir() and not each.is_symlink())]:
        if folder.name != "tmp":
            folder.chmod(0o755)
