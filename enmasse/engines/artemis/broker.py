"""Apache ActiveMQ Artemis as the suite's broker: start by the supervisor, and pod."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from enmasse.engines import mark
from enmasse.engines.artemis import instance, peers
from enmasse.engines.engine import AMQP, DATA, ETC, TMP, BrokerEngine, Pod
from enmasse.engines.program import HealthProbe, LazyProbe, Program, Spec, foreign
from enmasse.storage.files import write_changed

NAME: Final = "artemis"
HOME = "/opt/artemis"
"""The distribution in the image."""
MIB = instance.MIB


class ArtemisProgram:
    """Runs children of the engine `artemis`. Their settings are those of services/broker (docs/contracts.md) that
    Artemis has."""

    def __init__(self, home: str, java: str, archive: str | None = None) -> None:
        self._home, self._java, self._archive = home, java, archive

    def prepare(self, spec: Spec, folder: Path) -> list[str]:
        """Write the instance of a broker, and return the command that starts it.

        Raises OSError; its text has the reason if the data are another engine's.
        """
        settings = spec.settings
        made = _instance(spec, folder / spec.name)
        if made.persisted:
            try:
                mark.claim(Path(settings["data_dir"]), NAME)
            except mark.OtherEngine as error:
                raise OSError(errno.EPERM, str(error), settings["data_dir"]) from None
        else:
            shutil.rmtree(made.data, ignore_errors=True)  # pages of a killed process: nothing may read them
        for made_folder in (Path(made.etc), Path(made.tmp)):
            made_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in instance.files(made).items():
            write_changed(Path(made.etc) / name, text)
        return foreign(*instance.command(made, self._home, self._java, self._archive))

    def probe(self, spec: Spec) -> HealthProbe:
        """Return the probe of the broker's management."""
        run = [str(Path(spec.settings["peers"]).parent)] if "peers" in spec.settings else []
        return LazyProbe("enmasse.engines.artemis.probe", "ArtemisProbe", spec.settings["listen"], *run)


def _find(service: Program) -> Program:
    """Return Artemis with its distribution, fetched if missing, and a Java that runs it. Raises Unavailable."""
    from enmasse.engines.artemis import distribution

    return ArtemisProgram(*distribution.ready())


def _instance(spec: Spec, own: Path) -> instance.Instance:
    settings: dict[str, Any] = spec.settings
    host, _, port = settings["listen"].rpartition(":")
    persisted = settings.get("data_dir") is not None
    return instance.Instance(
        name=spec.name,
        host=host,
        port=int(port),
        etc=str(own / "etc"),
        data=settings["data_dir"] if persisted else settings["page_dir"],
        tmp=str(own / "tmp"),
        memory=settings["global_max_size"],
        persisted=persisted,
        defaults=settings["settings"],
        log_level=settings["log_level"],
        peers=str(Path(settings["peers"]).parent) if "peers" in settings else None,
    )


def _pod(name: str, settings: Mapping[str, Any], log_level: str) -> Pod:
    made = instance.Instance(
        name=name,
        host="0.0.0.0",  # noqa: S104 - in a pod
        port=AMQP,
        etc=ETC,
        data=f"{DATA}/data",
        tmp=TMP,
        memory=settings["global_max_size"],
        persisted=settings["persisted"],
        defaults=settings["settings"],
        log_level=log_level,
        certificates=settings.get("peers"),
    )
    probe = {"tcpSocket": {"port": "amqp"}, "periodSeconds": 10, "timeoutSeconds": 5}
    container = {
        "command": instance.command(made, HOME),
        "ports": [{"name": "amqp", "containerPort": AMQP}],
        "readinessProbe": probe,
        "livenessProbe": {**probe, "failureThreshold": 6},
        "startupProbe": {**probe, "failureThreshold": 60},
    }
    return Pod(instance.files(made), container, 256 * MIB + instance.heap(settings["global_max_size"]))


BROKER = BrokerEngine(
    NAME,
    help=f"{NAME}: Apache ActiveMQ Artemis, which is fetched once",
    kind=NAME,
    serves_http=False,
    find=_find,
    pod=_pod,
    duplicates_by_address=False,
    levels_exist=False,
    holds_subscriptions=False,
    refused={"MAX_SUBSCRIPTIONS": "do not limit the durable subscriptions of a client; remove it"},
    peers=peers.files,
    blocks_at_capacity=False,
)
