"""Two routers of Apache Qpid Dispatch as pods, which form a mesh. The brokers are ours: in Artemis a durable
subscription belongs to the router too by which its client came (docs/engines.md), and a Service leads to any router.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.images import dispatch
from tests.kubernetes import archive
from tests.kubernetes.node import Node
from tests.kubernetes.on_node.installation import VALUES, Installation
from tests.kubernetes.on_node.load import Load, check_from_outside, check_program

pytestmark = [pytest.mark.needs("qdrouterd"), pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def installed(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    _load_image(node, tmp_path_factory.mktemp("qdrouterd"))
    node.define_routes()
    router = {**VALUES["router"], "engine": "qdrouterd", "image": dispatch.IMAGE, "replicas": 2}
    made = Installation(node, router=router)
    try:
        made.install()
        yield made
    finally:
        made.close()


def _load_image(node: Node, folder: Path) -> None:
    root, file = folder / "root", folder / "image.tar"
    root.mkdir()
    dispatch.fill(root, folder / "qdrouterd.json")
    archive.write_folder(file, dispatch.IMAGE, root, dispatch.PATH)
    node.load(file)


def test_one_program_for_every_engine(installed: Installation) -> None:
    check_program(installed)


def test_amqps_from_outside_by_host_name(installed: Installation) -> None:
    check_from_outside(installed)


def test_routers_are_killed_and_restarted_under_load(installed: Installation) -> None:
    """Both at once, and then by a rolling restart."""
    load = Load(installed, "dispatch")
    load.goes_on()
    installed.kill("router", "qdrouterd")
    load.goes_on()
    installed.restart("statefulset/enmasse-router")
    load.goes_on()
    load.check()
