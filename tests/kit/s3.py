"""An S3 server (moto) with one bucket, as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.error import URLError
from urllib.request import Request, urlopen

from enmasse.testing import free_port
from tests.interop.clients import moto
from tests.kit.waiting import wait_for

BUCKET = "spools"


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Run it; gives what clients of it have in their environment."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)],
        env={**os.environ, "PYTHONPATH": str(moto())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"

    def made() -> bool:
        assert process.poll() is None, "the S3 server has ended"
        with suppress(URLError):
            return bool(urlopen(Request(f"{url}/{BUCKET}", method="PUT"), timeout=60).status == 200)
        return False

    try:
        wait_for(made, "a bucket of the S3 server")
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "of the spool",
            "AWS_REGION": "us-east-1",
        }
    finally:
        process.kill()
        process.wait()
