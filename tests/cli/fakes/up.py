"""`enmasse up` with stand-ins for the services and a status feed that is read from DATA/feed.json.

With FAKE_MQTT in the environment it has the MQTT services too.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from enmasse.process.process_bounds import parse
from enmasse.supervisor import start
from enmasse.supervisor.children import launch
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.feed import AddressTexts
from enmasse.supervisor.plan.services import Options

SERVICE = str(Path(__file__).with_name("service.py"))


class Executing(launch.ForkServer):
    """None at all: a stand-in is executed, and real services would be imported in vain."""

    async def start(self) -> None:
        launch.inherit_orphans()


class FileFeed:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = ""
        self.body: dict[str, Any] | None = None
        self.attached = False
        self.spaces: Collection[str] | None = None
        self.gateways: dict[str, int] | None = None
        self.routers: dict[str, int] | None = None

    async def run(self, changed: Callable[[], None]) -> None:
        while True:
            if self.path.exists():
                text = self.path.read_text()
                if text != self.text:
                    self.text, body = text, json.loads(text)
                    unready = [address for address in body["addresses"] if not address["ready"]]
                    found = {"addresses": body["addresses"], "unready": unready}
                    self.body = {**body, **{key: texts(addresses) for key, addresses in found.items()}}
                    self.attached = True
                    changed()
            # pause: until it looks again
            await asyncio.sleep(0.02)

    async def force(self, names: list[str]) -> str | None:
        self.path.with_name("forced.json").write_text(json.dumps(names))
        return None


def texts(addresses: list[dict[str, Any]]) -> AddressTexts:
    return AddressTexts([json.dumps(address).encode() for address in addresses])


def command(kind: str, settings: Path) -> list[str]:
    return [sys.executable, "-S", SERVICE, kind, "--config", str(settings)]


def main() -> None:
    config, data, offset, *tls = sys.argv[1:]
    cert, key = map(Path, tls) if tls else (None, None)
    without = frozenset() if "FAKE_MQTT" in os.environ else frozenset({"mqtt"})
    options = Options(Path(config), Path(data), int(offset), cert, key, without, os.environ.get("ENMASSE_STORE"))
    if "ENMASSE_GATEWAYS" in os.environ:
        options = replace(options, gateways=parse(os.environ["ENMASSE_GATEWAYS"]))

    async def feed(_: str, __: object) -> FileFeed:
        return FileFeed(options.data / "feed.json")

    def again() -> Options:
        try:
            return replace(options, **json.loads((options.data / "again.json").read_text()))
        except FileNotFoundError:
            return options
        except ValueError as error:
            raise StartError("start.options.invalid", str(error)) from None

    setattr(start, "ForkServer", Executing)  # noqa: B010  it exports only `run`
    try:
        start.run(options, sys.stdout, lambda line: print(line, file=sys.stderr, flush=True), command, feed, again)
    except StartError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


main()
