"""One broker of Apache ActiveMQ Artemis as our address model wants it: its files and its command line. Pure.

This is the only template: the supervisor and the image write these texts unchanged. Settings here apply to every
address (the match `#`); the storage controller sets those of single addresses by management.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape  # xml.sax.saxutils imports an HTTP client
from typing import Any, NamedTuple

from enmasse.engines.artemis import peers

MIB = 1024 * 1024
HEAP_BASE, HEAP_LEAST = 128 * MIB, 256 * MIB
"""Bytes of heap that Artemis needs in addition to messages, and the smallest heap that is useful."""

NIO_TIMEOUT, AIO_TIMEOUT = 100_000, 4_000
"""Nanoseconds for which the journal gathers writes before it syncs them. For the default of NIO, 3.3 ms, a producer
with one message outstanding would wait with each."""

_XML_NAMES = {
    "DLA": "dead-letter-address",
    "addressFullMessagePolicy": "address-full-policy",
    "pageFullMessagePolicy": "page-full-policy",
}
"""Settings of which the name in broker.xml is not that of management with hyphens."""


class Instance(NamedTuple):
    """Configuration of one broker. Folders are absolute; sizes are in bytes."""

    name: str
    host: str
    """Address of the AMQP listener: `127.0.0.1`, in a pod `0.0.0.0`."""
    port: int
    etc: str
    """The folder of the files."""
    data: str
    """The folder of journal, bindings, large messages and pages. Artemis makes it."""
    tmp: str
    """An existing folder for what goes with the process."""
    memory: int
    """Bytes of messages in memory. FULL_POLICY, one of `defaults`, says what happens to further messages."""
    persisted: bool = True
    """Messages survive the process."""
    defaults: Mapping[str, Any] = {}
    """Settings of every address, by the names they have in management (`maxDeliveryAttempts`)."""
    aio: bool = False
    """The journal writes by libaio, which must be installed, and not by NIO."""
    log_level: str = "warning"
    """`debug`, `info`, `warning` or `error`."""
    peers: str | None = None
    """The folder of the files with the processes that may connect (peers.py); None: every client may do everything,
    unless there are `certificates`."""
    certificates: str | None = None
    """The folder with the broker's certificate; processes connect by those of the same authorities
    (enmasse/identity/processes/process_certificates.py). Artemis reads changed files within seconds."""


def files(instance: Instance) -> dict[str, str]:
    """Return name → text of every file in `etc`. Raises ValueError for a setting that has no place in XML."""
    etc = escape(instance.etc)
    return {
        "broker.xml": _broker(instance),
        "bootstrap.xml": '<broker xmlns="http://activemq.apache.org/schema">'
        f'<jaas-security domain="activemq"/><server configuration="file:{etc}/broker.xml"/></broker>\n',
        # Without this file it does not start. No management but AMQP's: no JMX, no web server.
        "management.xml": '<management-context xmlns="http://activemq.apache.org/schema"/>\n',
        "login.config": _login(instance),
        "log4j2.properties": _logging(instance),
        **({} if instance.certificates is None else peers.certificate_files(instance.certificates)),
    }


def command(instance: Instance, home: str, java: str = "java", archive: str | None = None) -> list[str]:
    """Return the command line. `home`: the unpacked distribution; `archive`: its class archive (archive.py), if any.
    SIGTERM ends it cleanly, with status 143."""
    etc = instance.etc
    return [
        java,
        *([f"-XX:SharedArchiveFile={archive}"] if archive is not None else []),
        "-Xms64m",
        f"-Xmx{heap(instance.memory) // MIB}m",
        # Of the collectors that with the least memory and the quickest start; such heaps pause for milliseconds.
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
        f"-Djava.security.auth.login.config={etc}/login.config",
        f"-Dlog4j2.configurationFile=file:{etc}/log4j2.properties",
        "-Dlog4j2.disableJmx=true",
        f"-Dartemis.home={home}",
        f"-Dartemis.instance={instance.tmp}",
        f"-Dartemis.instance.etc={etc}",
        f"-Ddata.dir={instance.data}",
        f"-Djava.io.tmpdir={instance.tmp}",
        f"-Djava.library.path={home}/bin/lib/linux-x86_64",
        "-cp",
        f"{home}/lib/*",  # no folder: an archive of classes is for archives of classes only
        "org.apache.activemq.artemis.cli.Artemis",
        "run",
    ]


def heap(memory: int) -> int:
    """Return bytes of heap for a broker that keeps `memory` bytes of messages, each of them as bytes and as objects."""
    return max(HEAP_LEAST, HEAP_BASE + 2 * memory)


def _broker(instance: Instance) -> str:
    data = escape(instance.data)
    acceptor = {
        "protocols": "AMQP",
        "amqpCredits": "1000",
        "amqpLowCredits": "300",
        # Larger ones go into files of their own; the journal takes none that is larger than its buffer.
        "amqpMinLargeMessageSize": "102400",
        # By the application property `_AMQ_DUPL_ID`, not by message-ids: publications and wills come once.
        "amqpDuplicateDetection": "true",
    }
    if instance.peers is not None:
        acceptor |= {"saslMechanisms": "SCRAM-SHA-256", "saslLoginConfigScope": "scram"}
    if instance.certificates is not None:
        acceptor |= peers.certificate_acceptor(instance.certificates, instance.etc)
    at = f"tcp://{instance.host}:{instance.port}?" + ";".join(f"{key}={value}" for key, value in acceptor.items())
    return f"""<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
<name>{escape(instance.name)}</name>
<persistence-enabled>{_text(instance.persisted)}</persistence-enabled>
{_security(instance)}
<jmx-management-enabled>false</jmx-management-enabled>
<journal-type>{"ASYNCIO" if instance.aio else "NIO"}</journal-type>
<journal-datasync>true</journal-datasync>
<journal-buffer-timeout>{AIO_TIMEOUT if instance.aio else NIO_TIMEOUT}</journal-buffer-timeout>
<journal-min-files>2</journal-min-files>
<journal-pool-files>10</journal-pool-files>
<journal-file-size>10M</journal-file-size>
<journal-directory>{data}/journal</journal-directory>
<bindings-directory>{data}/bindings</bindings-directory>
<large-messages-directory>{data}/large-messages</large-messages-directory>
<paging-directory>{data}/paging</paging-directory>
<global-max-size>{instance.memory}</global-max-size>
<!-- Below it producers get no credit. By default that is a tenth of the disk, however large it is. -->
<min-disk-free>128M</min-disk-free>
<disk-scan-period>1000</disk-scan-period>
<message-expiry-scan-period>1000</message-expiry-scan-period>
<address-queue-scan-period>5000</address-queue-scan-period>
<!-- A broker that hangs is ended, and whoever runs it starts it again. -->
<critical-analyzer-policy>HALT</critical-analyzer-policy>
<!-- Repeated messages that an address knows. Artemis takes the first element of this name, wherever it stands. -->
<id-cache-size>20000</id-cache-size>
<wildcard-addresses><routing-enabled>true</routing-enabled><delimiter>/</delimiter><any-words>#</any-words><single-word>+</single-word></wildcard-addresses>
<temporary-queue-namespace>{peers.NAMESPACE}</temporary-queue-namespace>
<acceptors><acceptor name="amqp">{escape(at)}</acceptor></acceptors>
<address-settings><address-setting match="#">
{_settings(instance.defaults)}
</address-setting>
<!-- A copy that a divert makes is recognised by the address that the message came to. Two caches that differ would have
     a repeated message rejected, and one for each MQTT session is more than the heap has. -->
<address-setting match="$sub/#"><id-cache-size>0</id-cache-size></address-setting>
</address-settings>
</core></configuration>
"""


_GUESTS = "activemq { org.apache.activemq.artemis.spi.core.security.jaas.GuestLoginModule required; };\n"


def _login(instance: Instance) -> str:
    if instance.certificates is not None:
        return peers.certificate_login(instance.etc)
    return _GUESTS if instance.peers is None else peers.login(instance.peers)


def _security(instance: Instance) -> str:
    if instance.peers is None and instance.certificates is None:
        return (
            "<!-- Every client that reaches the port may do everything. No router leads to activemq.management. -->\n"
            "<security-enabled>false</security-enabled>"
        )
    settings = f"<security-settings>\n{peers.security_settings()}\n</security-settings>"
    return f"<security-enabled>true</security-enabled>\n{settings}"


_DEFAULTS = {
    # Only what the controller makes exists. (Temporary queues are not "created": they are the client's.)
    "autoCreateQueues": False,
    "autoCreateAddresses": False,
    "autoDeleteQueues": False,
    "autoDeleteAddresses": False,
    # As the embedded broker: without a dead letter address, giving up is losing.
    "maxDeliveryAttempts": -1,
    "defaultAddressRoutingType": "MULTICAST",
    "defaultQueueRoutingType": "MULTICAST",
}


def _settings(given: Mapping[str, Any]) -> str:
    lines = []
    for name, value in {**_DEFAULTS, **given}.items():
        if not isinstance(value, str | bool | int | float):
            raise ValueError(f"{name}: {value!r} is no value of an address setting")
        tag = xml_name(name)
        lines.append(f"<{tag}>{escape(_text(value))}</{tag}>")
    return "\n".join(lines)


def xml_name(name: str) -> str:
    """Return the element of an address setting in broker.xml: `maxDeliveryAttempts` → `max-delivery-attempts`."""
    return _XML_NAMES.get(name) or re.sub(r"[A-Z]", lambda found: "-" + found[0].lower(), name)


def _text(value: str | bool | float) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


_LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}


def _logging(instance: Instance) -> str:
    """One JSON object a line on stderr, as the services write: event, level, timestamp, service."""
    level = _LEVELS[instance.log_level]
    fields = (
        '{"event": "%enc{%m}{JSON}", "level": "%level{WARN=warning, lowerCase=true}",'
        ' "timestamp": "%d{yyyy-MM-dd\'T\'HH:mm:ss.SSS}{UTC}Z",'
        f' "service": "{instance.name}", "logger": "%c{{1}}", "exception": "%enc{{%ex{{5}}}}{{JSON}}"}}'
    )
    return f"""status = ERROR
rootLogger = {level}, console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.alwaysWriteExceptions = false
appender.console.layout.pattern = {fields}%n
# That a queue has no dead letter address is how it is meant to be.
appender.console.filter.meant.type = RegexFilter
appender.console.filter.meant.regex = AMQ22216[56]:.*
appender.console.filter.meant.onMatch = DENY
appender.console.filter.meant.onMismatch = NEUTRAL
# Every message and every request of management, with content.
logger.audit.name = org.apache.activemq.audit
logger.audit.level = OFF
"""
