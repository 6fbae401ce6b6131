"""Contexts: suites on other machines and in clusters that commands work on.

They are kept in one file of the user, without passwords: the path of a file that has one may be there.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from shlex import quote
from typing import NoReturn
from urllib.parse import urlsplit

import click

from enmasse.cli.common import COULD_NOT_START, UNREACHABLE, end
from enmasse.cli.contexts.userfolder import user_folder
from enmasse.cli.same_suite import NAMED, SPACE_NAMED, WITH_SPACE, WITHOUT, context_of_option
from enmasse.text import did_you_mean

FILE = "enmasse-contexts.json"
LOCAL = "local"
"""Name of the context that stands for this machine; it is in no file."""
PLACES = ("offset", "config", "namespace", "data")
"""Parameters by which a command line names a suite itself."""
_FOUND = "enmasse.cli.contexts.contexts.found"
_OF_MACHINE = "it works on the files and processes of this machine, which are those of all address spaces"
OF_ONE_SPACE = frozenset({"backup", "restore"})
"""Commands with an option --space of their own."""
WITHOUT_SPACE = {
    "init": _OF_MACHINE,
    "up": _OF_MACHINE,
    "down": _OF_MACHINE,
    "reload": _OF_MACHINE,
    "status": "routers, brokers and services are those of all address spaces: `enmasse space show NAME` shows one",
    "logs": _OF_MACHINE,
    "scale": "services are those of all address spaces",
    "restart": "components are those of all address spaces",
    "flavor": "flavors are those of all address spaces: the plan of a space says which of them it may use",
    "space": "it names the address space itself",
    "config": "it checks the folders of all address spaces",
    "spark": "the source and sink of a job have the option `space`",
    "deploy": "an installation serves all address spaces",
    "context": "only `context add` takes one, for the commands that work on the context",
    "version": _OF_MACHINE,
    "help": "it works on no suite",
}
"""Commands that take no address space, and why."""
MOST_NAMES = 10
"""Contexts that an error names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A suite elsewhere. `url`: of its console; `amqp`, `mqtt`: of its listeners for clients; `ca`: file with the
    authorities that all of them are verified with, None: the system's; `namespace`: of a cluster that is asked by its
    API server, with the context `kube_context` of the kubeconfig, instead of a console."""

    name: str
    url: str | None = None
    user: str | None = None
    password_file: str | None = None
    ca: str | None = None
    amqp: str | None = None
    mqtt: str | None = None
    namespace: str | None = None
    kube_context: str | None = None
    space: str | None = None
    """Address space that commands work on; None: that of the user."""

    def __str__(self) -> str:
        return f"context {self.name}"


class Contexts:
    """Content of the file: contexts by name, and the current one."""

    def __init__(self) -> None:
        base = user_folder("XDG_CONFIG_HOME", ".config")
        self.path = None if base is None else base / FILE
        self.current = LOCAL
        self.by_name: dict[str, Context] = {}

    @staticmethod
    def read() -> Contexts:
        """Return what is in the file; nothing without one. Ends the command if it cannot be used."""
        found = Contexts()
        if found.path is None:
            return found
        try:
            content = json.loads(found.path.read_bytes())
            found.current = str(content["current"])
            known = {field.name for field in dataclasses.fields(Context)} - {"name"}
            for name, entry in content["contexts"].items():
                values = {key: str(value) for key, value in entry.items() if key in known}
                found.by_name[name] = Context(name=name, **values)
        except FileNotFoundError:
            pass
        except OSError as error:
            _unusable(f"{found.path}: cannot be read: {error.strerror}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            _unusable(f"{found.path}: is no file of `enmasse context`: delete it, and add the contexts again")
        return found

    def write(self) -> None:
        """Replace the file; only its owner can read it. Ends the command if that fails."""
        from enmasse.storage.files import write_text

        entries = {
            name: {key: value for key, value in dataclasses.asdict(each).items() if key != "name" and value is not None}
            for name, each in sorted(self.by_name.items())
        }
        if self.path is None:
            _unusable("this user has no home folder: set HOME, or XDG_CONFIG_HOME, to a full path")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = json.dumps({"current": self.current, "contexts": entries}, indent=2, ensure_ascii=False)
            write_text(self.path, content + "\n", mode=0o600, durable=True)
        except OSError as error:
            _unusable(f"{self.path}: cannot be written: {error.strerror}")

    def get(self, name: str) -> Context | None:
        """Return a context; None for this machine. Ends the command if the name is unknown."""
        if name == LOCAL:
            return None
        if name not in self.by_name:
            names = [LOCAL, *sorted(self.by_name)]
            there = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
            text = f"there is no context {name!r}: there is {there}; `enmasse context add {quote(name)} URL` adds it."
            end("context.name.unknown", text + did_you_mean(name, names), COULD_NOT_START)
        return self.by_name[name]


def _unusable(text: str) -> NoReturn:
    end("context.file.unusable", text, COULD_NOT_START)


def name_it(running: click.Context, _: click.Parameter, name: str | None) -> None:
    """Take the value of the option --context."""
    if name:
        running.find_root().meta[NAMED] = name


def space_it(running: click.Context, _: click.Parameter, name: str | None) -> None:
    """Take the value of the option --space."""
    if name:
        running.find_root().meta[SPACE_NAMED] = name


def space_named() -> str | None:
    """Return the address space of --space alone, which holds for a server that the command line names too."""
    running = click.get_current_context(silent=True)
    if running is None or (root := running.find_root()).invoked_subcommand not in WITH_SPACE:
        return None
    named: str | None = root.meta.get(SPACE_NAMED)
    return named


def no_space(running: click.Context, option: click.Parameter, name: str | None) -> None:
    """Refuse the option --space, which this command does not take."""
    if name and running.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE:
        command = running.find_root().invoked_subcommand or ""
        raise click.UsageError(f"`enmasse {command}` takes no --space: {WITHOUT_SPACE[command]}")


def space() -> str | None:
    """Return the address space that the running command works on: that of --space, else of the context in force; None:
    that of the user, for the operator the default one. Ends the command if it names files itself."""
    running, named = click.get_current_context(silent=True), space_named()
    if running is None or running.find_root().invoked_subcommand not in WITH_SPACE:
        return None
    here = click.core.ParameterSource.COMMANDLINE
    if named is not None and any(running.get_parameter_source(place) is here for place in ("config", "namespace")):
        text = "--space works on a running suite: leave --config and --namespace out, or change the files in spaces/"
        raise click.UsageError(text)
    context = in_force(running)
    return named or (None if context is None else context.space)


def in_force(running: click.Context | None = None) -> Context | None:
    """Return the context that a command (None: the running one) works on; None: this machine. Ends the command if the
    one that is named does not exist (status 2)."""
    running = running or click.get_current_context(silent=True)
    if running is None:
        return None
    meta = running.find_root().meta
    if _FOUND not in meta:
        meta[_FOUND] = _chosen(running)
    found: Context | None = meta[_FOUND]
    return found


def _chosen(running: click.Context) -> Context | None:
    root, here = running.find_root(), click.core.ParameterSource.COMMANDLINE
    if root.invoked_subcommand in WITHOUT:
        return None
    named = root.meta.get(NAMED)
    if any(running.get_parameter_source(place) is here for place in PLACES):  # it names a suite itself
        if context_of_option(running) is not None:
            raise click.UsageError("--context names a suite, and so does another option: give one of them")
        return None
    if named == LOCAL:
        return None
    contexts = Contexts.read()
    return contexts.get(named or contexts.current)


def refuse(why: str) -> None:
    """End the command if it works on a context. `why`: the reason that it cannot."""
    if (context := in_force()) is not None:
        _unsuitable(
            context, f"this command works on the suite on this machine only: {why}. Name it with --context local"
        )


def url_of(context: Context, kind: str) -> str:
    """Return the URL of a context: `kind` is url, amqp or mqtt. Ends the command if it is missing."""
    found: str | None = getattr(context, kind)
    if found is None:
        what, how = ("a console", "URL") if kind == "url" else (f"{kind.upper()} listener", f"--{kind} {kind}s://HOST")
        _unsuitable(context, f"it has no URL of {what}. Remove it, and add it with {how}")
    return found


def _unsuitable(context: Context, text: str) -> NoReturn:
    end("context.command.unsuitable", f"{context}: {text}", COULD_NOT_START)


def fault_of_url(text: str, kind: str, schemes: tuple[str, ...]) -> str:
    """Return what is wrong with a URL of a context; empty: nothing."""
    from enmasse.model.loopback import is_loopback

    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in schemes or not host:
        return f"expected {' or '.join(f'{scheme}://HOST[:PORT]' for scheme in schemes)}"
    if parts.username is not None or parts.password is not None:
        return "a context has no password in a URL: give --user, and --password-file if it is not to be asked for"
    if parts.path.strip("/") or parts.query or parts.fragment:
        return "expected a host and a port, and nothing after it"
    secure = kind == "amqp" or parts.scheme.endswith("s")  # AMQP does not show the server the password
    if not secure and not is_loopback(host):
        return f"passwords would cross the network in the clear: use {schemes[0]}://"
    return ""


def unreachable(context: Context, reason: str) -> NoReturn:
    """End the command: the console does not answer."""
    end("server.connection.failed", f"{context}: {context.url}: {reason}", UNREACHABLE)
