"""The pinned Artemis and its template: what is fetched is what was pinned, and a killed broker has what it accepted."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from enmasse.engines.artemis import distribution, instance
from enmasse.engines.artemis.instance import MIB, Instance
from enmasse.engines.engine import EngineUnavailable
from enmasse.engines.maven import Distribution
from tests.artemis import Artemis, running_artemis
from tests.kit.waiting import DEADLINE

PLAIN = Instance("b-0", "127.0.0.1", 5672, "/etc/artemis", "/data", "/tmp", 64 * MIB)
CORE = "{urn:activemq:core}"


@pytest.fixture(scope="module")
def artemis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Artemis]:
    with running_artemis(tmp_path_factory.mktemp("artemis")) as server:
        yield server


def manage(connection: BlockingConnection, operation: str, *arguments: object) -> object:
    """One management operation of the broker; its result."""
    receiver = connection.create_receiver(None, dynamic=True, name=f"reply-{operation}")
    sender = connection.create_sender("activemq.management", name=f"ask-{operation}")
    properties = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": operation}
    reply_to = receiver.link.remote_source.address
    sender.send(Message(reply_to=reply_to, properties=properties, body=json.dumps(arguments)))
    answer = receiver.receive(timeout=DEADLINE)
    receiver.accept()
    for end in (sender, receiver):
        end.close()
    assert answer.properties["_AMQ_OperationSucceeded"], answer.body
    return json.loads(answer.body)[0] if answer.body else None


@pytest.mark.slow  # tests/contract/test_kill.py kills the one that the tests of contracts share
def test_what_was_accepted_survives_sigkill_and_nothing_exists_that_nobody_made(artemis: Artemis) -> None:
    connection = BlockingConnection(artemis.address, timeout=DEADLINE)
    queue = {"name": "orders", "address": "orders", "routing-type": "ANYCAST", "durable": True}
    manage(connection, "createQueue", json.dumps({**queue, "auto-create-address": True}))
    with pytest.raises(Exception, match="amqp:not-found"):
        connection.create_sender("strays", name="strays")
    sender = connection.create_sender("orders", name="sender")
    for number in range(50):
        sender.send(Message(id="all devices count from 1", body=str(number), durable=True))
    artemis.kill()
    artemis.start()
    receiver = BlockingConnection(artemis.address, timeout=DEADLINE).create_receiver(
        "orders", name="receiver", credit=60
    )
    assert [receiver.receive(timeout=DEADLINE).body for _ in range(50)] == [str(number) for number in range(50)]


def test_settings_are_written_by_their_names_in_xml() -> None:
    defaults = {"maxSizeBytes": 5, "addressFullMessagePolicy": "FAIL", "DLA": "a<b", "autoCreateQueues": True}
    core = ET.fromstring(instance.files(PLAIN._replace(defaults=defaults, name='x"&<'))["broker.xml"])[0]
    found = {element.tag.removeprefix(CORE): element.text for element in core.iter()}
    assert found["max-size-bytes"] == "5" and found["address-full-policy"] == "FAIL"
    assert found["dead-letter-address"] == "a<b" and found["auto-create-queues"] == "true"
    assert found["name"] == 'x"&<'
    assert found["global-max-size"] == str(64 * MIB)
    with pytest.raises(ValueError, match="maxSizeBytes"):
        instance.files(PLAIN._replace(defaults={"maxSizeBytes": None}))


def test_the_heap_grows_with_what_is_kept_in_memory() -> None:
    def most(memory: int) -> str:
        return next(word for word in instance.command(PLAIN._replace(memory=memory), "/home") if "Xmx" in word)

    assert most(1024) == "-Xmx256m"
    assert most(512 * MIB) == "-Xmx1152m"


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache without Artemis, and a PATH with nothing on it but what the test puts there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(folder: Path, name: str, text: str) -> None:
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_what_is_missing_is_named_with_what_to_do(empty: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"mvn is not on PATH.*apt-get install maven"):
        distribution.home()
    with pytest.raises(EngineUnavailable, match=r"java is not on PATH.*openjdk-17"):
        distribution.check_java()
    program(empty, "java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    with pytest.raises(EngineUnavailable, match=r"is Java 11: .* needs Java 17"):
        distribution.check_java()
    program(empty, "java", "echo 'openjdk version \"21\" 2023-09-19' >&2")
    assert distribution.check_java() == str(empty / "bin" / "java")
    program(empty, "mvn", "echo '[ERROR] Unknown host repo.example'; exit 1")
    with pytest.raises(EngineUnavailable, match=r"Unknown host.*network"):
        distribution.home()


def test_an_archive_that_is_not_the_pinned_one_is_not_unpacked(empty: Path) -> None:
    archive = distribution.ARTEMIS.file
    # What mvn does, with other bytes: the repository is its second last but two words.
    text = (
        'for word in "$@"; do case $word in -Dmaven.repo.local=*) r=${word#*=};; esac; done; '
        f'/bin/mkdir -p "$r/a"; echo wrong > "$r/a/{archive}"'
    )
    program(empty, "mvn", text)
    with pytest.raises(EngineUnavailable, match=r"SHA-256 .*expected"):
        distribution.home()
    assert [path.name for path in (empty / "cache" / "enmasse").iterdir()] == [f".{distribution.ARTEMIS.folder}.lock"]


def test_what_is_fetched_is_unpacked_and_belongs_to_its_user(empty: Path) -> None:
    archive = empty / "one-1.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        entry = tarfile.TarInfo("one-1/readme")
        entry.uid, entry.gid, entry.size = 12345, 12345, 4
        packed.addfile(entry, io.BytesIO(b"read"))
    copied = (
        'for word in "$@"; do case $word in -Dmaven.repo.local=*) r=${word#*=};; esac; done; '
        f'/bin/mkdir -p "$r/a"; /bin/cp {archive} "$r/a"'
    )
    program(empty, "mvn", copied)
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    readme = Distribution("One 1", "a:one:1:tar.gz:bin", archive.name, "one-1", found).unpacked() / "readme"
    assert readme.read_text() == "read" and readme.stat().st_uid == os.geteuid()


def test_the_java_of_this_machine_runs_it() -> None:
    assert subprocess.run([distribution.check_java(), "-version"], capture_output=True, check=True)
    assert shutil.which("java")
