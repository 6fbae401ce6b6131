"""Processes that the storage controller desires: started, replaced and ended by the contents of the folder
`desired`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from enmasse.engines import EMBEDDED
from enmasse.engines.program import Spec
from enmasse.identity.processes.operator import SECRET_FILE
from enmasse.supervisor import desired_processes
from enmasse.supervisor.children.child import Child
from enmasse.supervisor.children.group import ChildGroup
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan.datadir import DataDir
from enmasse.supervisor.plan.internal_ports import LOOPBACK, InternalPorts
from enmasse.supervisor.plan.services import PEERS, Options


class DesiredBrokers(ChildGroup[str]):
    """Name → child. `make_child(spec)` makes one; `changed` is called after every change; `report` gets a line for
    users; `gone` gets the name of a process that has left the suite.
    """

    def __init__(
        self, options: Options, data: DataDir, ports: InternalPorts, make_child: Callable[[Spec], Child],
        changed: Callable[[], None], report: Callable[[str], None], gone: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__()
        self._options = options
        self._data = data
        self._ports = ports
        self._make_child = make_child
        self._changed = changed
        self._report = report
        self._gone = gone
        self._desired: dict[str, tuple[Spec, dict[str, Any]]] = {}
        """Name → spec of the started child, and the settings in its file."""
        self._seen: desired_processes.Mark | None = None

    @property
    def settled(self) -> bool:
        """Return True if every desired child is ready and none is being ended."""
        return not self._leaving and all(child.ready for child in self._children.values())

    def look(self, taken: Iterable[str]) -> None:
        """Read the folder if it has changed. `taken`: names of other processes."""
        mark = desired_processes.look(self._data.desired)
        if mark == self._seen:
            return
        try:
            processes, problems = desired_processes.read_desired(self._data.desired, taken)
            for problem in problems.values():
                self._report(problem)
            self._apply(processes, keep=problems.keys())
        except OSError as error:
            self._report(f"{error.filename or self._data.desired}: {error.strerror}; brokers stay unchanged until then")
        except StartError as error:
            self._report(str(error))
        else:
            self._seen = mark

    def take(self, options: Options) -> None:
        """Have other options from now on. Raises OSError."""
        self._options = options
        for name, child in self._children.items():
            spec, written = self._desired[name]
            level = options.log_level("broker")
            renewed = replace(spec, settings={**spec.settings, "log_level": level})
            self._desired[name] = renewed, written
            child.renew(renewed)

    def actual(self) -> list[dict[str, Any]]:
        """Return the running processes in the form of `desired.write_actual`."""
        facts = []
        for child in self.children:
            entry = child.component()
            host, _, port = child.spec.settings["listen"].rpartition(":")
            keep = ("name", "kind", "pid", "ready", "restarts", "detail")
            fact = {key: entry[key] for key in keep}
            facts.append({**fact, "host": host, "port": int(port), "settings": self._desired[child.spec.name][1]})
        return facts

    def _apply(self, processes: dict[str, desired_processes.DesiredProcess], keep: Iterable[str]) -> None:
        processes = {name: process for name, process in processes.items() if self._is_ours(process)}
        specs = {name: self._spec(process) for name, process in processes.items() if name not in self._leaving}
        for name in self._children.keys() - set(keep):
            if specs.get(name) != self._desired[name][0]:
                self._end(name, forget_ports=name not in processes)
        for name, spec in specs.items():
            if name not in self._children and name not in self._leaving:
                self._desired[name] = spec, processes[name].settings
                self._children[name] = self._make_child(spec)
                self._children[name].start()
        self._changed()

    def _is_ours(self, process: desired_processes.DesiredProcess) -> bool:
        """Return True unless the file belongs to another suite, for example after it was copied here."""
        engine = desired_processes.ENGINES[process.kind]
        if engine != self._options.broker:
            self._report(
                f"{self._data.desired / process.name}.json: a broker of engine {engine} is not started, because this"
                f" suite has --broker {self._options.broker}; take the file away, or start with --broker {engine}"
            )
        return engine == self._options.broker

    def _end(self, name: str, *, forget_ports: bool) -> None:
        """End the process `name`; then the folder is read again, which restarts it if only its settings changed."""
        del self._desired[name]

        def ended(_: Child) -> None:
            if forget_ports:
                self._ports.release(f"{name}/health")
                self._ports.release(f"{name}/amqp")
                self._gone(name)
            self._seen = None  # read again: the process may be desired with other settings

        self._leave(name, ended)

    def _spec(self, process: desired_processes.DesiredProcess) -> Spec:
        settings = {
            **process.settings,
            "name": process.name,
            "health": f"{LOOPBACK}:{self._ports.get(f'{process.name}/health')}",
            "listen": f"{LOOPBACK}:{self._ports.get(f'{process.name}/amqp')}",
            "log_level": self._options.log_level("broker"),
            "peers": str(self._data.run / PEERS),
        }
        if desired_processes.ENGINES[process.kind] == EMBEDDED:
            settings |= {
                "audit": str(self._data.audit),
                "metrics_secret": str(self._data.run / SECRET_FILE),
                "metrics_addresses": self._options.metrics_addresses,
                **self._options.traced,
            }
        for key in ("data_dir", "page_dir"):  # if not absolute: below the data directory of the suite
            if isinstance(settings.get(key), str):
                settings[key] = str(self._data.path / "brokers" / settings[key])
        return Spec(process.name, "broker", settings, engine=desired_processes.ENGINES[process.kind])
