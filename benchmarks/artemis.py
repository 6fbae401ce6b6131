"""A real Apache ActiveMQ Artemis from the Maven repository, configured so that the comparison is fair.

It is our own template (enmasse/engines/artemis) with three differences: heap and collector of a server of this size,
AIO where libaio is there, and queues that are made by their first sender. Fair are journal-datasync on, both JIT
compilers, and a journal buffer time-out as Artemis' own autotune would choose it (the default of a NIO journal,
3.3 ms, makes one outstanding message ten times slower than Artemis can be).
"""

from __future__ import annotations

import contextlib
import ctypes.util
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Server, free_port, running
from enmasse.engines.artemis import distribution, instance
from enmasse.engines.artemis.instance import MIB, Instance

DEFAULTS = {
    "autoCreateQueues": True,
    "autoCreateAddresses": True,
    "defaultAddressRoutingType": "ANYCAST",
    "defaultQueueRoutingType": "ANYCAST",
}


@contextlib.contextmanager
def artemis(protocols: str = "AMQP") -> Iterator[Server]:
    """A fresh broker on a free port, which takes these protocols there; its data goes with it."""
    home, port = str(distribution.home()), free_port()
    scratch = Path(tempfile.mkdtemp())
    etc, data, tmp = (scratch / name for name in ("etc", "data", "tmp"))
    for folder in (etc, tmp):
        folder.mkdir()
    bench = Instance(
        "bench", "127.0.0.1", port, str(etc), str(data), str(tmp),
        memory=512 * MIB, defaults=DEFAULTS, aio=ctypes.util.find_library("aio") is not None,
    )  # fmt: skip
    for name, text in instance.files(bench).items():
        (etc / name).write_text(text.replace("protocols=AMQP", f"protocols={protocols}"))
    ours = ("-Xm", "-XX:+UseSerialGC")
    java, *rest = (word for word in instance.command(bench, home, distribution.java()) if not word.startswith(ours))
    command = [java, "-Xms1g", "-Xmx1g", *rest]
    with running("Artemis " + distribution.VERSION, command, port, scratch=scratch) as server:
        yield server
