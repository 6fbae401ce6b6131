"""A real Kafka, one node, and the jars of Spark's source for it, both from the Maven repository."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Server, free_port, running
from enmasse.engines.artemis.distribution import check_java
from enmasse.engines.maven import cache

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={data}
num.partitions=2
offsets.topic.replication.factor=1
"""


def jars(name: str) -> Path:
    """The folder with the jars of `<name>.pom.xml`, fetched on first use into the user's cache."""
    pom = Path(__file__).with_name(f"{name}.pom.xml")
    folder = cache() / f"kafka-{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            command = ["mvn", "-B", "-q", "-ntp", "-f", str(pom), f"-Dmaven.repo.local={scratch}/maven"]
            command += [f"{PLUGIN}:copy-dependencies", f"-DoutputDirectory={scratch}/jars", "-DincludeScope=runtime"]
            subprocess.run(command, check=True)
            shutil.move(f"{scratch}/jars", folder)
    return folder


@contextlib.contextmanager
def kafka() -> Iterator[Server]:
    """A fresh broker; topics are made by their first use, with two partitions. Its data goes with it."""
    scratch, port = Path(tempfile.mkdtemp()), free_port()
    java = [check_java(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars('server')}/*"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        controller = free_port()
    properties = scratch / "server.properties"
    properties.write_text(PROPERTIES.format(port=port, controller=controller, data=scratch / "data"))
    tool = [*java, "kafka.tools.StorageTool"]
    made = subprocess.run([*tool, "random-uuid"], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([*tool, "format", "-t", made, "-c", str(properties)], check=True, stdout=subprocess.DEVNULL)
    command = [java[0], "-Xms512m", "-Xmx512m", *java[1:], "kafka.Kafka", str(properties)]
    with running("Kafka 3.9.1", command, port, scratch=scratch) as server:
        yield server
