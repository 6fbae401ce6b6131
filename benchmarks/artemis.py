"""A real Apache ActiveMQ Artemis from the Maven repository, configured so that the comparison is fair.

The tarball is fetched once and kept under the user's cache folder. Fair means: default collector, both JIT compilers,
AIO where libaio is there, journal-datasync on, and a journal buffer time-out of 100 µs (the default of a NIO journal,
3.3 ms, makes one outstanding message ten times slower than Artemis can be).
"""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Server, free_port, running

VERSION = "2.56.0"
COORDINATE = f"org.apache.artemis:apache-artemis:{VERSION}:tar.gz:bin"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"

LOGGING = """rootLogger = WARN, console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5level %logger{1} %msg%n
"""


def home() -> Path:
    """The unpacked distribution, fetched on first use. Raises RuntimeError where Maven or Java is missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "enmasse"
    folder = cache / f"apache-artemis-{VERSION}"
    if (folder / "lib").is_dir():
        return folder
    for program in ("mvn", "java"):
        if shutil.which(program) is None:
            raise RuntimeError(
                f"{program} is not on PATH: needed to fetch and run Artemis (Debian: maven, openjdk-17-jre-headless)"
            )
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        repository = f"-Dmaven.repo.local={cache / 'maven'}"
        for goal in (
            [f"{PLUGIN}:get", f"-Dartifact={COORDINATE}", "-Dtransitive=false"],
            [f"{PLUGIN}:copy", f"-Dartifact={COORDINATE}", f"-DoutputDirectory={scratch}"],
        ):
            subprocess.run(["mvn", "-B", "-q", "-ntp", repository, *goal], check=True, cwd=scratch)
        (archive,) = Path(scratch).glob("*.tar.gz")
        shutil.unpack_archive(archive, scratch, filter="data")
        (Path(scratch) / f"apache-artemis-{VERSION}").rename(folder)
    return folder


def broker_xml(scratch: Path, port: int) -> str:
    journal = "ASYNCIO" if ctypes.util.find_library("aio") else "NIO"
    folders = "".join(
        f"<{name}-directory>{scratch / name}</{name}-directory>" for name in ("paging", "bindings", "journal")
    )
    permissions = "".join(
        f'<permission type="{kind}" roles="amq"/>'
        for kind in [
            "createNonDurableQueue",
            "deleteNonDurableQueue",
            "createDurableQueue",
            "deleteDurableQueue",
            "createAddress",
            "deleteAddress",
            "consume",
            "browse",
            "send",
            "manage",
        ]
    )
    return f"""<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core"><name>bench</name>
<persistence-enabled>true</persistence-enabled><security-enabled>false</security-enabled>
<journal-type>{journal}</journal-type><journal-datasync>true</journal-datasync>
<journal-buffer-timeout>{4000 if journal == "ASYNCIO" else 100000}</journal-buffer-timeout>
<journal-max-io>4096</journal-max-io>
{folders}<large-messages-directory>{scratch / "large"}</large-messages-directory>
<journal-min-files>4</journal-min-files><journal-pool-files>10</journal-pool-files>
<journal-file-size>10M</journal-file-size>
<max-disk-usage>98</max-disk-usage><critical-analyzer>false</critical-analyzer>
<acceptors><acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP;useEpoll=true;amqpCredits=1000;amqpLowCredits=300;amqpDuplicateDetection=false</acceptor></acceptors>
<security-settings><security-setting match="#">{permissions}</security-setting></security-settings>
<address-settings><address-setting match="#"><auto-create-queues>true</auto-create-queues>
<auto-create-addresses>true</auto-create-addresses><auto-delete-queues>false</auto-delete-queues>
<auto-delete-addresses>false</auto-delete-addresses><default-address-routing-type>ANYCAST</default-address-routing-type>
<default-queue-routing-type>ANYCAST</default-queue-routing-type></address-setting></address-settings>
</core></configuration>"""


@contextlib.contextmanager
def artemis() -> Iterator[Server]:
    """A fresh broker on a free port; its data goes with it."""
    distribution, port = home(), free_port()
    scratch = Path(tempfile.mkdtemp())
    etc = scratch / "etc"
    etc.mkdir()
    (scratch / "tmp").mkdir()
    (etc / "broker.xml").write_text(broker_xml(scratch, port))
    (etc / "log4j2.properties").write_text(LOGGING)
    (etc / "management.xml").write_text('<management-context xmlns="http://activemq.apache.org/schema"/>')
    (etc / "bootstrap.xml").write_text(
        '<broker xmlns="http://activemq.apache.org/schema"><jaas-security domain="activemq"/>'
        f'<server configuration="file:{etc}/broker.xml"/></broker>'
    )
    (etc / "login.config").write_text(
        "activemq { org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required\n"
        ' org.apache.activemq.jaas.properties.user="users.properties"'
        ' org.apache.activemq.jaas.properties.role="roles.properties"; };\n'
    )
    (etc / "users.properties").write_text("admin = admin\n")
    (etc / "roles.properties").write_text("amq = admin\n")
    command = [
        "java",
        "-Xms1g",
        "-Xmx1g",
        "-cp",
        f"{etc}:{distribution}/lib/*",
        "--add-opens",
        "java.base/jdk.internal.misc=ALL-UNNAMED",
        f"-Djava.security.auth.login.config={etc}/login.config",
        f"-Dartemis.home={distribution}",
        f"-Dartemis.instance={scratch}",
        f"-Dartemis.instance.etc={etc}",
        f"-Ddata.dir={scratch}",
        f"-Djava.io.tmpdir={scratch}/tmp",
        f"-Djava.library.path={distribution}/bin/lib/linux-x86_64",
        "-Dlog4j2.disableJmx=true",
        "org.apache.activemq.artemis.cli.Artemis",
        "run",
    ]
    with running("Artemis " + VERSION, command, port, scratch=scratch) as server:
        yield server
