"""Apache ActiveMQ Artemis as the suite's broker: checks before the start, the start, and the health probe."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

from enmasse import engine_mark
from enmasse.artemis import distribution, instance
from enmasse.supervisor import desired
from enmasse.supervisor.child import HealthProbe, foreign
from enmasse.supervisor.datadir import DataDir
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.files import read_file, write_text
from enmasse.supervisor.plan import ARTEMIS, EMBEDDED, Spec
from enmasse.supervisor.probe import LazyProbe


def find() -> Artemis:
    """Return the distribution, fetched if missing, and a Java that runs it. Raises StartError."""
    try:
        return Artemis(*distribution.ready())
    except distribution.Unavailable as error:
        raise StartError(f"--broker {ARTEMIS}: {str(error).rstrip('.')}. Or start with --broker {EMBEDDED}.") from None


class Artemis:
    """Runs children of the engine `artemis`. Their settings are those of services/broker (docs/contracts.md) that
    Artemis has."""

    version = distribution.VERSION

    def __init__(self, home: str, java: str, archive: str | None = None) -> None:
        self._home, self._java, self._archive = home, java, archive

    def prepare(self, spec: Spec, folder: Path) -> list[str]:
        """Write the instance of a broker, and return the command that starts it.

        Raises OSError; its text has the reason if the data are another engine's.
        """
        settings = spec.settings
        own = folder / spec.name
        made = _instance(spec, own)
        if made.persisted:
            try:
                engine_mark.claim(Path(settings["data_dir"]), ARTEMIS)
            except engine_mark.OtherEngine as error:
                raise OSError(errno.EPERM, str(error), settings["data_dir"]) from None
        else:
            shutil.rmtree(made.data, ignore_errors=True)  # pages of a killed process: nothing may read them
        for made_folder in (Path(made.etc), Path(made.tmp)):
            made_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in instance.files(made).items():
            _write(Path(made.etc) / name, text)
        return foreign(*instance.command(made, self._home, self._java, self._archive))

    def probe(self, spec: Spec) -> HealthProbe:
        """Return the probe of the broker's management."""
        return LazyProbe("enmasse.supervisor.artemis_probe", "ArtemisProbe", spec.settings["listen"])


def _write(path: Path, text: str) -> None:
    """Write a file unless it has this content: a restart must not need space on a full disk."""
    try:
        if read_file(path) == text.encode():
            return
    except FileNotFoundError:
        pass
    write_text(path, text)


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
    )


def check_data(data: DataDir, engine: str) -> None:
    """Raise StartError if brokers of another engine have messages here. Files of in-memory brokers of another engine
    are deleted: they contain no messages, and are created again."""
    processes, _ = desired.read_desired(data.desired, ())
    for process in processes.values():
        if desired.ENGINES[process.kind] == engine:
            continue
        kept = process.settings.get("data_dir")
        folder = data.path / "brokers" / kept if isinstance(kept, str) else None
        found = engine_mark.owner(folder) if folder is not None else None
        if found is not None and found != engine:
            assert folder is not None
            raise StartError(f"{folder} {engine_mark.refusal(found, engine)}.")
        (data.desired / f"{process.name}.json").unlink(missing_ok=True)
