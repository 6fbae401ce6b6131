"""The programs of the test bed, built from Go modules once per state of their sources: `tools/NAME`.

`python -m tests.kubernetes.binaries [NAME ...]` builds them and says what it does; `--path NAME` prints where it is.
On two idle cores a machine without a cache takes about eight minutes, most of it for Kubernetes itself, and needs 4 GB
of disk meanwhile. What Go has compiled (3 GB) is removed when all are built; the binaries (350 MB) stay in the user's
cache folder, and the modules (1 GB) where Go keeps them (`go clean -modcache` removes them).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent / "tools"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "enmasse-kubernetes"
PARTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet", "kube-proxy")
"""Programs that the binary `kube` is, by the name that it is called by."""
KUBERNETES = "1.35.4"
GO = "1.26.8"
"""The release that builds if the one on PATH is older than GO_NEEDED: every release of Go can fetch it as a module."""
GO_NEEDED = (1, 26)


class Broken(Exception):
    """A program cannot be built; says what to do."""


@dataclass(frozen=True)
class Program:
    """What `go build` makes of a folder in `tools`."""

    package: str = "."
    stamps: tuple[tuple[str, str], ...] = ()
    """Variables that the linker sets: without them a program does not know its version."""
    module: str = ""
    files: tuple[str, ...] = ()
    """Files of `module` that are put together to `files.yaml` beside the binary."""


def _version(package: str) -> tuple[tuple[str, str], ...]:
    major, minor, _ = KUBERNETES.split(".")
    stamps = {
        "gitVersion": f"v{KUBERNETES}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": "2026-01-01T00:00:00Z",
    }
    return tuple((f"{package}.{name}", value) for name, value in stamps.items())


def _helm() -> tuple[tuple[str, str], ...]:
    major, minor, _ = KUBERNETES.split(".")
    package = "helm.sh/helm/v3"
    kubernetes = [(f"{package}/pkg/{one}.k8sVersion", one) for one in ("chartutil", "lint/rules")]
    return (
        (f"{package}/internal/version.version", "v3.22.0"),
        *((f"{name}Major", major) for name, _ in kubernetes),
        *((f"{name}Minor", minor) for name, _ in kubernetes),
    )


_STAGES = "kustomize/stage"
PROGRAMS = {
    "etcd": Program("go.etcd.io/etcd/server/v3"),
    "kube": Program(stamps=_version("k8s.io/component-base/version")),
    "kwok": Program(
        "sigs.k8s.io/kwok/cmd/kwok",
        (("sigs.k8s.io/kwok/pkg/consts.Version", "v0.8.0"),),
        "sigs.k8s.io/kwok",
        (
            f"{_STAGES}/node/fast/node-initialize.yaml",
            f"{_STAGES}/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
            f"{_STAGES}/pod/fast/pod-ready.yaml",
            f"{_STAGES}/pod/fast/pod-complete.yaml",
            f"{_STAGES}/pod/fast/pod-delete.yaml",
        ),
    ),
    "helm": Program("helm.sh/helm/v3/cmd/helm", _helm()),
    "kubeconform": Program("github.com/yannh/kubeconform/cmd/kubeconform"),
    "helm-docs": Program("github.com/norwoodj/helm-docs/cmd/helm-docs"),
    "pause": Program(),
    "coredns": Program(),
}


def folder(name: str) -> Path:
    """A folder with the binary `name`, built now if it is not there; for `kube` also its parts, as links."""
    program = PROGRAMS[name]
    done = CACHE / f"{name}-{_digest(name, program)}"
    if not done.exists():
        with _locked():
            if not done.exists():
                _build(name, program, done)
    return done


def binary(name: str) -> str:
    """The path of a program: a name in PROGRAMS or in PARTS."""
    return str(folder("kube" if name in PARTS else name) / name)


FOR_CLUSTER = ("etcd", "kube", "kwok", "helm", "kubeconform", "helm-docs")


def build(names: Iterable[str]) -> None:
    """Build what of these is not there yet, and say so; then remove what Go needed for it."""
    missing = [name for name in names if not (CACHE / f"{name}-{_digest(name, PROGRAMS[name])}").exists()]
    for name in missing:
        print(f"building {name} (once, then it is in {CACHE}) ...", flush=True)
        began = time.monotonic()
        folder(name)
        print(f"  {name}: {time.monotonic() - began:.0f} s", flush=True)
    if missing:
        with _locked():
            # Go makes its files read-only, but not the folders of this cache
            shutil.rmtree(CACHE / "go-build", ignore_errors=True)


def _digest(name: str, program: Program) -> str:
    digest = hashlib.sha256(f"{_go_version()}\0{program}".encode())
    for file in sorted((SOURCES / name).iterdir()):
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _go_version() -> str:
    return _go(["version"], SOURCES / "kube").strip()


@cache
def _go_program() -> str:
    """The `go` of this machine if it is new enough, else the one of GO, which it fetches into its modules."""
    found = shutil.which("go")
    if found is None:
        raise Broken("go is missing: tools/prepare.sh kubernetes installs it")
    *_, version, platform = _run(found, ["version"], SOURCES / "kube").split()
    if _release(version) >= GO_NEEDED:
        return found
    module = f"golang.org/toolchain@v0.0.1-go{GO}.{platform.replace('/', '-')}"
    with tempfile.TemporaryDirectory() as nowhere:  # a go.mod that asks for a newer release has no say in this
        fetched = json.loads(_run(found, ["mod", "download", "-json", module], Path(nowhere), attempts=3))
    root = Path(fetched["Dir"])
    for program in (*root.glob("bin/*"), *root.glob("pkg/tool/*/*")):  # which are no programs in a module
        program.chmod(0o555)
    return str(root / "bin" / "go")


def _release(version: str) -> tuple[int, ...]:
    """(1, 26) of `go1.26.8`; (0,) of a release that has no number."""
    found = re.match(r"go(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else (0,)


@contextmanager
def _locked() -> Iterator[None]:
    """One build at a time, on this machine: it uses all cores anyway."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(name: str, program: Program, done: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=f"{name}-") as scratch:
        fresh = Path(scratch) / "build"
        shutil.copytree(SOURCES / name, fresh)
        stamps = " ".join(["-s", "-w", *(f"-X {variable}={value}" for variable, value in program.stamps)])
        lean = ["-p", "2", "-trimpath", "-gcflags", "all=-dwarf=false", "-ldflags", stamps]  # no data for debuggers
        _go(["build", *lean, "-o", name, program.package], fresh, attempts=3)
        if program.files:
            module = Path(_go(["list", "-m", "-f", "{{.Dir}}", program.module], fresh).strip())
            (fresh / "files.yaml").write_text("\n---\n".join((module / file).read_text() for file in program.files))
        for part in PARTS if name == "kube" else ():
            (fresh / part).symlink_to(name)
        fresh.rename(done)


def _go(arguments: list[str], place: Path, attempts: int = 1) -> str:
    return _run(_go_program(), arguments, place, attempts)


def _run(go: str, arguments: list[str], place: Path, attempts: int = 1) -> str:
    """`attempts`: of what fetches modules; what has come stays."""
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOCACHE": str(CACHE / "go-build"),
        "GOFLAGS": "-buildvcs=false",
        "GOGC": "400",  # the compiler collects less often: a tenth less processor time, for memory that is there
        "GOTOOLCHAIN": "local",
    }
    environment.pop("GOROOT", None)  # each finds its own
    for _ in range(attempts):
        done = subprocess.run(["nice", go, *arguments], cwd=place, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout
    raise Broken(f"go {' '.join(arguments)} in {place.name}: exit status {done.returncode}\n{done.stderr[-4000:]}")


def main() -> None:
    try:
        if sys.argv[1:2] == ["--path"]:
            print(binary(sys.argv[2]))
        else:
            build(sys.argv[1:] or FOR_CLUSTER)
    except Broken as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
