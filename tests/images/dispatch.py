"""An image of Apache Qpid Dispatch, made of the qdrouterd on PATH. That may be a script that only sets variables:
what it stands on is asked of one that runs.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from enmasse.testing import free_port, wait_for
from tests.images import bases

PROGRAM = "qdrouterd"
IMAGE = "localhost/enmasse-test/qdrouterd:1"
PLACE = "/opt/qdrouterd"
PATH = f"{sys.base_prefix}/bin:/usr/bin"
"""In it the Python inside of Dispatch finds its own modules."""
_START = """\
#!/bin/sh
export LD_LIBRARY_PATH={place}/lib PYTHONPATH={modules}
exec {place}/{program} --include {included} "$@"
"""


def fill(root: Path, file: Path) -> None:
    """Puts the files of the image into the folder `root`. `file`: may be written."""
    bases.skeleton(root)
    bases.python(root)
    with _running(file) as process:
        program = (process / "exe").readlink()
        variables = dict(each.partition("=")[::2] for each in (process / "environ").read_text().split("\0"))
    place = root / PLACE[1:]
    _libraries(root, program, place / "lib")
    shutil.copy(program, place / PROGRAM)
    own = program.parents[1] / "lib/qpid-dispatch/python"
    modules = [_modules(root, Path(source)) for source in variables.get("PYTHONPATH", "").split(":") if source]
    start = root / "usr/bin" / PROGRAM
    start.write_text(
        _START.format(place=PLACE, modules=":".join(modules), program=PROGRAM, included=_modules(root, own))
    )
    start.chmod(0o755)


def _libraries(root: Path, program: Path, target: Path) -> None:
    """Those that it loads, and the plugins of Cyrus SASL with theirs."""
    target.mkdir(parents=True)
    own = bases.loaded(str(program))
    folders = (Path(library).resolve().parent / "sasl2" for library in own if "/libsasl2." in library)
    plugins = [plugin for folder in folders for plugin in folder.glob("*.so")]
    for library in own | bases.loaded(*map(str, plugins)):
        shutil.copy(library, target)
    for plugin in plugins:
        copied = root / str(plugin)[1:]
        copied.parent.mkdir(exist_ok=True)
        shutil.copy(plugin, copied)


def _modules(root: Path, source: Path) -> str:
    """Copies a folder, or an archive, of Python modules; returns where that is in the image."""
    place = f"{PLACE}/python{source}"
    target = root / place[1:]
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    return place


@contextmanager
def _running(file: Path) -> Iterator[Path]:
    """Its folder under /proc."""
    port = free_port()
    listener = {"name": "operators", "host": "127.0.0.1", "port": str(port)}
    file.write_text(json.dumps([["router", {"id": "asked"}], ["listener", listener]]))
    process = subprocess.Popen([PROGRAM, "--config", str(file)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def listens() -> bool:
        assert process.poll() is None, f"{PROGRAM} has ended"
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(f"{PROGRAM} listens", listens)
        yield Path("/proc", str(process.pid))
    finally:
        process.kill()
        process.wait()
