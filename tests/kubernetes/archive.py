"""Container images as files, without a tool: the format of `docker save`, which containerd and podman import."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(file: Path, name: str, files: Mapping[str, bytes], entrypoint: list[str]) -> None:
    """An image of one layer with these files, all of them executable. `name`: with host and tag, `localhost/x:1`."""
    _write(file, name, _tar(files), {"Entrypoint": entrypoint, "User": "65535:65535"})


def write_folder(file: Path, name: str, folder: Path, path: str) -> None:
    """An image of one layer with what is in this folder, owned by root. `path`: where programs are found."""

    def of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(folder, arcname=".", filter=of_root)
    _write(file, name, buffer.getvalue(), {"Env": [f"PATH={path}"]})


def _write(file: Path, name: str, layer: bytes, runs: Mapping[str, Any]) -> None:
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": runs,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    content = {"config.json": json.dumps(config).encode(), "layer.tar": layer}
    file.write_bytes(_tar({**content, "manifest.json": json.dumps(manifest).encode()}))


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
