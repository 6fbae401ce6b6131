"""`enmasse init DIR`: a starting point for a configuration."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from enmasse.cli.common import done, end

ADDRESSES = """\
{
  "myqueue": {"type": "queue", "flavor": "small-persisted-queue"},
  "mytopic": {"type": "topic", "flavor": "small-persisted-topic"},
  "mqtt": {"type": "topic", "flavor": "small-persisted-topic", "mqttDefault": true},
  "anycast": {"type": "anycast"},
  "broadcast": {"type": "multicast"}
}
"""

FLAVORS = """\
{
  "vanilla-queue": {"type": "queue", "templateName": "queue-inmemory"},
  "vanilla-topic": {"type": "topic", "templateName": "topic-inmemory"},
  "small-persisted-queue": {
    "type": "queue", "templateName": "queue-persisted", "templateParameters": {"STORAGE_CAPACITY": "1Gi"}
  },
  "large-persisted-queue": {
    "type": "queue", "templateName": "queue-persisted", "templateParameters": {"STORAGE_CAPACITY": "10Gi"}
  },
  "small-persisted-topic": {
    "type": "topic", "templateName": "topic-persisted", "templateParameters": {"STORAGE_CAPACITY": "1Gi"}
  },
  "large-persisted-topic": {
    "type": "topic", "templateName": "topic-persisted", "templateParameters": {"STORAGE_CAPACITY": "10Gi"}
  }
}
"""

README = """\
# A configuration of EnMasse

Start it, and look whether it is ready:

    enmasse up --config . --data ./data
    enmasse status --wait 10

## addresses.json: what developers want

An object: the name of an address, and what it is.

| type | stores messages | who receives a message |
|---|---|---|
| `queue` | yes | one of the receivers; they compete |
| `topic` | yes | every subscription, durable ones also later |
| `anycast` | no | one of the receivers that are attached; senders wait until there is one |
| `multicast` | no | every receiver that is attached |

`queue` and `topic` need a flavor. The older notation works too:
`{"store_and_forward": true, "multicast": false, "flavor": "small-persisted-queue"}` is a queue
(both true: a topic; both false: anycast; only `multicast`: multicast).

Here are `myqueue`, `mytopic`, `mqtt`, `anycast` and `broadcast` (of type multicast). The stored ones are persistent:
what was accepted survives the death of any process. `mqtt` has `"mqttDefault": true`: it takes all MQTT topics that no
other address takes, so a device may publish to any (`sensors/temp` is `mqtt/sensors/temp` for AMQP clients). Without an
address so marked, other topics are refused.

    enmasse address add telemetry --type topic --flavor small-persisted-topic
    enmasse send myqueue "hello"
    enmasse receive myqueue --count 1
    mosquitto_pub -t sensors/temp -m 21

## flavors.json: what administrators offer

A flavor is a pool of brokers that carries queues or topics.

| flavor | keeps messages | room |
|---|---|---|
| `vanilla-queue`, `vanilla-topic` | in memory: lost with their broker, even those sent as durable | memory |
| `small-persisted-queue`, `small-persisted-topic` | on disk, before they are accepted | 1 GiB |
| `large-persisted-queue`, `large-persisted-topic` | on disk, before they are accepted | 10 GiB |

`enmasse status` and `enmasse address show` report for every address of a flavor in memory that its messages are
lost with their broker.

`templateParameters` may hold:

| parameter | means |
|---|---|
| `BROKERS` | how many brokers share the addresses of this flavor (default 1) |
| `DEDICATED` | true: each address has brokers of its own |
| `STORAGE_CAPACITY` | room on disk, such as `1Gi` (persisted templates only) |
| `MEMORY` | room in memory, such as `512Mi` |
| `FULL_POLICY` | what happens when there is no room: `FAIL`, `BLOCK`, `DROP` or `PAGE` |

## Changing it

Both files may be changed while the suite runs, with an editor or with `enmasse address`; it takes effect within a
second. A file that does not parse changes nothing. An entry that is wrong keeps its last good version and is reported
by `enmasse status` with file, entry, field, line and reason. An address that is removed, or given another type or
flavor, while it holds messages is kept and reported until it is empty, or until `enmasse address remove --force`
deletes the messages (after which it can be added again).
"""

FILES = {"addresses.json": ADDRESSES, "flavors.json": FLAVORS, "README.md": README}


@click.command(name="init", short_help="Write a starting point for a configuration.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def command(folder: Path) -> None:
    """Write a starting point for a configuration into DIR: addresses.json, flavors.json and a README.md that explains
    them.

    Overwrites nothing: if one of the files exists, none is written and the exit status is 1.
    """
    if there := existing(folder):
        end(
            "configuration.folder.in-use",
            f"{folder}: {', '.join(there)} exist{'s' if len(there) == 1 else ''} already; nothing was written. "
            "Choose another directory, or move the existing files away.",
        )
    try:
        write(folder)
    except OSError as error:
        end(
            "configuration.folder.not-writable",
            f"{folder}: {error.strerror}. Choose a directory this user may write to.",
        )
    config, data = shlex.quote(str(folder)), shlex.quote(os.environ.get("ENMASSE_DATA") or f"{folder}/data")
    line = f"wrote {', '.join(FILES)} to {folder}\nstart it: enmasse up --config {config} --data {data}"
    done(line, "written", folder=str(folder), files=list(FILES))


def existing(folder: Path) -> list[str]:
    """Return names of the files that are in `folder` already."""
    return [name for name in FILES if os.path.lexists(folder / name)]


def write(folder: Path) -> None:
    """Write all files; the folder is made if it is missing. Raises OSError."""
    from enmasse.storage.files import write_text

    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        write_text(folder / name, text, mode=0o644)
