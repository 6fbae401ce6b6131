"""`enmasse up`: run everything in the foreground."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.shell_completion import CompletionItem

from enmasse.cli.common import COULD_NOT_START, end, port_offset, report, say, warn_of_key
from enmasse.cli.configuration.options_file import OPTIONS_FILE, OptionsFault, option_name, options_in
from enmasse.cli.contexts.folders import config_folder, data_folder
from enmasse.engines import EMBEDDED
from enmasse.engines.choices import BROKERS, ROUTERS
from enmasse.engines.engine import MOST_ROUTERS
from enmasse.model.mqtt_limits import MOST_GATEWAYS, Limits
from enmasse.process import process_bounds
from enmasse.process.service_table import DOORS, SERVICES
from enmasse.process.settings import METRICS_ADDRESSES
from enmasse.text import named_as, whole_number

if TYPE_CHECKING:
    from enmasse.supervisor.plan.services import Options

LEVELS = ("debug", "info", "warning", "error")
COMPONENTS = ("enmasse", *SERVICES)
PARTS = ("mqtt",)
WITH = (*DOORS, "spark")
AS_GIVEN = (
    "allow_anonymous", "allow_plaintext", "gateways", "routers", "router", "broker", "store", "allowed_origins",
    "space_domain", "metrics_addresses", "traces",
)  # fmt: skip
"""Options whose values are those of the suite."""
SCHEMES = ("redis://", "rediss://", "unix://")


class ComponentLevel(click.ParamType):  # type: ignore[type-arg]  # generic for click 8.4's stubs only
    """`LEVEL` or `COMPONENT=LEVEL` as (component, level); the component is "" for all that are not named."""

    name = "log level"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return (component, level); an unknown one is wrong usage."""
        component, _, level = str(value).rpartition("=")
        component = named_as(component, COMPONENTS)
        if component and component not in COMPONENTS:
            self.fail(f"there is no component {component!r}; known are {', '.join(COMPONENTS)}.", param, ctx)
        if level not in LEVELS or value.startswith("="):
            self.fail(f"{level!r} is no level; known are {', '.join(LEVELS)}.", param, ctx)
        return component, level

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the levels and component=level pairs that begin with `incomplete`."""
        words = [*LEVELS, *(f"{component}={level}" for component in COMPONENTS for level in LEVELS)]
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


class Domain(click.ParamType):  # type: ignore[type-arg]  # generic for click 8.4's stubs only
    """A name of a host, below which address spaces have hosts."""

    name = "domain"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the domain; what is no name of a host is wrong usage."""
        from enmasse.model.tenants.spaces import host_fault

        if value and (fault := host_fault(str(value))):
            self.fail(f"{fault}.", param, ctx)
        return value


class MqttLimit(click.ParamType):  # type: ignore[type-arg]  # generic for click 8.4's stubs only
    """`NAME=NUMBER` as (name, number): a limit of MQTT clients."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return (name, number); an unknown limit, or a number that it cannot have, is wrong usage."""
        name, _, number = str(value).partition("=")
        name = named_as(name, Limits.__struct_fields__)
        if name not in Limits.__struct_fields__:
            self.fail(f"there is no limit {name!r}; known are {', '.join(Limits.__struct_fields__)}.", param, ctx)
        if (found := whole_number(number)) is None:
            self.fail(f"{number!r} is no number: write {name}=NUMBER.", param, ctx)
        try:
            msgspec.convert({name: found}, Limits)
        except msgspec.ValidationError as error:
            self.fail(f"{name}: {str(error).partition(' - at')[0]}.", param, ctx)
        return name, found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the limits that begin with `incomplete`."""
        return [CompletionItem(f"{name}=") for name in Limits.__struct_fields__ if name.startswith(incomplete)]


class StoreUrl(click.ParamType):  # type: ignore[type-arg]  # generic for click 8.4's stubs only
    """The URL of a Redis server."""

    name = "URL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the URL; one that is not of a Redis server is wrong usage."""
        text = str(value)
        if not text.startswith(SCHEMES) or text in SCHEMES or not text.isprintable():
            self.fail(f"{text!r} is no URL of a Redis server such as redis://127.0.0.1:6379/0.", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the schemes that begin with `incomplete`."""
        return [CompletionItem(scheme) for scheme in SCHEMES if scheme.startswith(incomplete)]


class Processes(click.ParamType):  # type: ignore[type-arg]  # generic for click 8.4's stubs only
    """A number of processes up to `most`, or bounds within which their load decides: 2, 1..4."""

    name = "number"

    def __init__(self, most: int) -> None:
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the bounds; anything else is wrong usage."""
        try:
            bounds = process_bounds.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not 1 <= bounds.least <= bounds.most <= self._most:
            self.fail(f"{value} is not in the range 1<=x<={self._most}.", param, ctx)
        return bounds


class Extra(click.ParamType):  # type: ignore[type-arg]  # generic for click 8.4's stubs only
    """A part that runs beside the suite, and its file: `http`, `stomp`, `coap`, `spark`, `spark=FILE`."""

    name = "part"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return (part, file or an empty text); an unknown part is wrong usage."""
        part, equals, file = str(value).partition("=")
        if part not in WITH or (equals and (not file or part in DOORS)):
            self.fail(
                f"{value!r} is no part that can be added; write http, stomp, coap, spark or spark=FILE.", param, ctx
            )
        return part, file

    @staticmethod
    def below(value: tuple[str, str], folder: Path) -> tuple[str, str]:
        """Return a value of an options file in a folder, to which its path is relative."""
        part, file = value
        return part, str(folder / file) if file else ""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the parts that begin with `incomplete`."""
        return [CompletionItem(part) for part in WITH if part.startswith(incomplete)]


class ListenAddress(click.ParamType):  # type: ignore[type-arg]  # generic for click 8.4's stubs only
    """An address of --listen."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a `Listen`; other text is wrong usage."""
        from enmasse.supervisor.plan.listen_option import parse

        try:
            return parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(f"{value!r}: {error}.", param, ctx)


@click.command(name="up", short_help="Run everything in the foreground.")
@click.option("--config", "config", type=click.Path(path_type=Path), metavar="DIR",
              help="Folder of addresses.json and flavors.json (default: ~/.config/enmasse).")  # fmt: skip
@click.option("--data", "data", type=click.Path(path_type=Path), metavar="DIR",
              help="Folder for messages and logs (default: ~/.local/share/enmasse).")  # fmt: skip
@port_offset
@click.option("--options", "options_file", type=click.Path(path_type=Path), metavar="FILE",
              help="JSON file of options, by these names; what stands on the command line or in the environment wins "
                   "(default: up.json in --config, if it is there).")  # fmt: skip
@click.option("--tls", type=click.Choice(("auto",)), metavar="auto",
              help="Make a CA and a certificate in the data folder, and serve as with --tls-cert.")  # fmt: skip
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE",
              help="Certificate (PEM); with it AMQPS (5671), MQTT over TLS (8883, 8084) are served.")  # fmt: skip
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key (PEM).")
@click.option("--tls-client-ca", type=click.Path(path_type=Path), metavar="FILE",
              help="With TLS: CA (PEM) of clients' certificates, whose common name is the user.")  # fmt: skip
@click.option("--listen", "listen", multiple=True, type=ListenAddress(), metavar="[PROTOCOL=]HOST[:PORT]",
              help="Let clients connect at this address too: of all protocols, or of amqp, amqps, mqtt, mqtts, ws, "
                   "wss, http, https, stomp, stomps, stompws, stompwss, coap or console; `*`: all addresses of this "
                   "machine. With PROTOCOL=HOST:PORT@SPACE the clients are of this address space. "
                   "May be repeated.")  # fmt: skip
@click.option("--allow-anonymous", is_flag=True,
              help="With --listen: clients of other machines may connect although there is no users.json.")  # fmt: skip
@click.option("--allow-plaintext", is_flag=True, help="With --listen: clients of other machines may do without TLS.")
@click.option("--without", "without", multiple=True, type=click.Choice(PARTS), metavar="PART",
              help="Leave a part out: mqtt (gateways, subscription service, last-will service).")  # fmt: skip
@click.option("--gateways", type=Processes(MOST_GATEWAYS), metavar="NUMBER",
              help="MQTT gateways, which share the MQTT ports, as `enmasse scale gateways NUMBER` sets them; 1..4: as "
                   "many as their load needs (default: as in the last run, at first 1).")  # fmt: skip
@click.option("--routers", type=Processes(MOST_ROUTERS), metavar="NUMBER",
              help="Embedded routers, which share the AMQP ports and form a network, as `enmasse scale routers NUMBER` "
                   "sets them; 1..4: as many as they need (default: as in the last run, at first 1).")  # fmt: skip
@click.option("--with", "extras", multiple=True, type=Extra(), metavar="PART[=FILE]",
              help="Run a part beside the suite: http, stomp, coap, gateways for their clients; spark, the telemetry "
                   "pipeline of FILE (default: spark.toml in --config).")  # fmt: skip
@click.option("--router", type=click.Choice(tuple(ROUTERS)), default=EMBEDDED, metavar="ENGINE",
              help=f"{', or '.join(engine.help for engine in ROUTERS.values())}.")  # fmt: skip
@click.option("--broker", type=click.Choice(tuple(BROKERS)), default=EMBEDDED, metavar="ENGINE",
              help=f"{', or '.join(engine.help for engine in BROKERS.values())}.")  # fmt: skip
@click.option("--store", type=StoreUrl(), metavar="URL",
              help="Redis server for MQTT sessions, retained messages, wills (default: files in --data).")  # fmt: skip
@click.option("--allowed-origin", "allowed_origins", multiple=True, metavar="ORIGIN",
              help="Let web pages of this origin, such as https://example.org, use MQTT over WebSocket, beside "
                   "those of the same host; `*`: all. May be repeated.")  # fmt: skip
@click.option("--space-domain", type=Domain(), default="", metavar="DOMAIN",
              help="Clients that connect to the host SPACE.DOMAIN mean the address space of this name.")  # fmt: skip
@click.option("--mqtt-limit", "mqtt_limits", multiple=True, type=MqttLimit(), metavar="NAME=NUMBER",
              help="Limit of MQTT clients: connections, max_packet, keep_alive, session_expiry, receive_maximum, "
                   "topic_aliases, … (docs/mqtt.md). May be repeated.")  # fmt: skip
@click.option("--metrics-addresses", type=click.IntRange(min=0), default=METRICS_ADDRESSES, metavar="NUMBER",
              help="Addresses with series of their own in /metrics; the others are counted together "
                   f"(default: {METRICS_ADDRESSES:,}).")  # fmt: skip
@click.option("--traces", is_flag=True,
              help="Trace messages by OpenTelemetry, as OTEL_EXPORTER_OTLP_ENDPOINT and its other variables say "
                   "(needs enmasse[otel]).")  # fmt: skip
@click.option(
    "--webhooks",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Post events and alerts to the receivers in FILE, which only you can read (docs/operations.md).",
)
@click.option("--log-level", "log_levels", multiple=True, type=ComponentLevel(), metavar="[COMPONENT=]LEVEL",
              help="debug, info (default), warning or error; for all components or one. May be repeated.")  # fmt: skip
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Run everything in the foreground, every service a process of its own, on loopback and where --listen says.

    The default folders are made if they are missing, and an empty configuration folder gets the files of
    `enmasse init`. XDG_CONFIG_HOME and XDG_DATA_HOME are used if they are set; with an offset N the folders' name is
    enmasse-N.

    AMQP is on port 5672, MQTT on 1883, MQTT over WebSocket on 8083 (path /mqtt), HTTP (/healthz, /api/status, /metrics)
    on 8080, each plus the offset; with TLS AMQPS on 5671, MQTT over TLS on 8883 and over WebSocket on 8084.
    Options that are neither here nor in the environment are read from up.json in --config, if it is there; `enmasse
    reload` reads it again.

    Prints one line per component and then `EnMasse is ready`. Ends with status 0 on SIGINT or SIGTERM;
    status 2 means that it could not start, and why is on stderr.
    """
    from enmasse.supervisor import start
    from enmasse.supervisor.errors import StartError

    _occupy_standard_streams()
    stated = _Stated(context, given)
    try:
        options = stated.options(first=True)
        start.run(options, sys.stdout or io.StringIO(), report, read_again=stated.again)
    except StartError as error:
        report("\n".join(error.lines))
        sys.exit(COULD_NOT_START)


class _Stated:
    """The options of a command line, and those of its options file."""

    def __init__(self, context: click.Context, given: Mapping[str, Any]) -> None:
        self._context = context
        self._given = given
        self._overridden: tuple[str, ...] = ()

    def options(self, *, first: bool = False) -> Options:
        """Return the options. `first`: an empty default folder gets the example. Raises StartError, or click.UsageError
        for what does not go together."""
        from enmasse.supervisor import start

        values = self._values()
        offset: int = values["offset"]
        data: Path = values["data"] or data_folder(offset)
        config: Path = values["config"] or config_folder(offset)
        _check_together(values)
        is_stated = values["config"] is not None
        options = replace(_options(config, data, values), overridden=self._overridden, config_stated=is_stated)
        if first and not is_stated:
            start.check_highest_port(options)  # before there is a folder of it
            _write_example(config, data)
        return options

    def again(self) -> Options:
        """Return the options, read again. Raises StartError."""
        from enmasse.supervisor.errors import StartError

        try:
            return self.options()
        except click.UsageError as error:
            raise StartError("start.options.invalid", error.format_message()) from None

    def _values(self) -> dict[str, Any]:
        """Return the value of each option: of the command line or the environment, else of the file, else its default.
        Raises StartError."""
        from enmasse.supervisor.errors import StartError

        given = dict(self._given)
        named: Path | None = given.pop("options_file")
        folder = given["config"] or config_folder(given["offset"])
        file = folder / OPTIONS_FILE if named is None else named
        if named is None and not file.exists():
            return given
        without = {"options"} if named is not None else {"options", "config"}
        if named is None and given["config"] is None:  # it chooses the folder
            without.add("port-offset")
        try:
            found = options_in(file, self._context, without)
        except OptionsFault as fault:
            raise StartError("start.options.invalid", *fault.lines) from None
        default = click.core.ParameterSource.DEFAULT
        used = {name: v for name, v in found.items() if self._context.get_parameter_source(name) is default}
        options = [each for each in self._context.command.params if isinstance(each, click.Option)]
        differ = {name for name in found.keys() - used.keys() if found[name] != given[name]}
        self._overridden = tuple(option_name(each) for each in options if each.name in differ)
        return given | used


def _check_together(values: Mapping[str, Any]) -> None:
    """Raise UsageError for options that exclude each other."""
    if values["tls"] is not None and (values["tls_cert"] or values["tls_key"]):
        raise click.UsageError("--tls auto makes its own certificate: leave --tls-cert and --tls-key out, or --tls")
    if values["gateways"] is not None and "mqtt" in values["without"]:
        raise click.UsageError("--without mqtt leaves the gateways out: leave --gateways out, or --without mqtt")
    router = values["router"]
    if values["routers"] is not None and not ROUTERS[router].shares_ports:
        raise click.UsageError(
            f"--routers is for routers that share the AMQP ports, which {router} does not do; `enmasse scale "
            "routers N` gives it N routers with ports of their own"
        )


def _pipeline(config: Path, extras: tuple[tuple[str, str], ...]) -> Path | None:
    """Return the file of the pipeline that is wanted; None without one."""
    named = dict(extras).get("spark")
    if named is None:
        return None
    return Path(named) if named else config / "spark.toml"


def _write_example(config: Path, data: Path) -> None:
    """Fill a default configuration folder that has no file yet."""
    from enmasse.cli.commands.suite import init
    from enmasse.supervisor import start

    if start.is_configured(data) or init.existing(config):
        return
    try:
        config.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        init.write(config)
        say(f"wrote {', '.join(init.FILES)} to {config}")
    except FileExistsError as error:
        end(
            "configuration.folder.not-a-directory",
            f"{error.filename} is not a directory. Name a folder with --config DIR, or move the existing file away.",
            COULD_NOT_START,
        )
    except OSError as error:
        end(
            "configuration.folder.not-readable",
            f"{error.filename or config}: {error.strerror}. Name a folder with --config DIR.",
            COULD_NOT_START,
        )


def _options(config: Path, data: Path, values: Mapping[str, Any]) -> Options:
    """Return the options of a suite. Raises StartError if the current directory is gone, or a file cannot be used."""
    from enmasse.supervisor.errors import StartError
    from enmasse.supervisor.plan.services import Options

    pipeline = _pipeline(config, values["extras"])
    if values["tls_key"] is not None:
        warn_of_key(values["tls_key"])
    try:
        return Options(
            config=config.absolute(),
            data=data.absolute(),
            offset=values["offset"],
            tls_cert=_absolute(values["tls_cert"]),
            tls_key=_absolute(values["tls_key"]),
            tls_client_ca=_absolute(values["tls_client_ca"]),
            tls_auto=values["tls"] is not None,
            pipeline=_absolute(pipeline),
            listen=values["listen"],
            without=frozenset(values["without"]),
            doors=frozenset(DOORS) & dict(values["extras"]).keys(),
            mqtt_limits=Limits(**dict(values["mqtt_limits"])),
            webhooks=_webhooks(values["webhooks"]),
            log_levels=dict(values["log_levels"]),
            **{name: values[name] for name in AS_GIVEN},
        )
    except OSError as error:
        text = f"the current directory does not exist ({error.strerror}): change to another one"
        raise StartError("command.folder.missing", text) from None


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


def _webhooks(file: Path | None) -> Path | None:
    """Return the file of --webhooks. Raises StartError if it cannot be used."""
    from enmasse.http.webhooks import read
    from enmasse.supervisor.errors import StartError

    if file is None:
        return None
    try:
        read(file)
    except ValueError as error:
        raise StartError("start.webhooks.invalid", str(error)) from None
    return file.absolute()


def _occupy_standard_streams() -> None:
    """If descriptor 0, 1 or 2 is closed, the next file that is opened would get its number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
