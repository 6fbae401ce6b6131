"""`enmasse context add|use|list|remove`: suites on other machines and in clusters."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from enmasse.cli.common import done, end, readable_by_others
from enmasse.cli.output.lists import Column, WantedRows, list_options

SCHEMES = {"url": ("https", "http"), "amqp": ("amqps", "amqp"), "mqtt": ("mqtts", "mqtt")}
FIELDS = ("url", "user", "space", "amqp", "mqtt", "namespace", "ca")


@click.group(name="context", short_help="Add, choose, list and remove contexts: suites elsewhere.")
def command() -> None:
    """Add, choose, list and remove contexts. A context is a suite on another machine or in a cluster; commands work on
    the current one, or on that of --context, over the API of its console. `local` is the suite on this machine.

    A context has no password: it is in a file of --password-file, or of ENMASSE_PASSWORD_FILE, or asked for.
    """


@command.command("add")
@click.argument("name")
@click.argument("url", required=False)
@click.option("--user", metavar="NAME", help="User that commands log in as.")
@click.option("--password-file", "new_password_file", metavar="FILE",
              help="File with the password of the user, or a token, which only you can read.")  # fmt: skip
@click.option("--ca", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
              help="Authorities (PEM) that TLS trusts, instead of the system's.")  # fmt: skip
@click.option("--amqp", metavar="URL", help="AMQP listener for send, receive, request, reply and bench.")
@click.option("--mqtt", metavar="URL", help="MQTT listener for publish and subscribe.")
@click.option("--space", metavar="NAME", help="Address space that commands work on, if not that of the user.")
@click.option("--namespace", metavar="NAME",
              help="Instead of URL: namespace of a Kubernetes cluster, for status, address and flavor.")  # fmt: skip
@click.option("--kube-context", metavar="NAME", help="With --namespace: context of the kubeconfig.")
def add(
    name: str, url: str | None, user: str | None, new_password_file: str | None, ca: str | None, amqp: str | None,
    mqtt: str | None, space: str | None, namespace: str | None, kube_context: str | None,
) -> None:  # fmt: skip
    """Add a context: the suite whose console is at URL, such as https://messaging.example.com."""
    from enmasse.cli.contexts.contexts import LOCAL, Context, Contexts, fault_of_url

    if name == LOCAL or not name.isprintable() or not name.strip():
        raise click.BadParameter(f"{name!r} cannot be the name of a context", param_hint="NAME")
    if (url is None) == (namespace is None):
        raise click.UsageError("give the URL of a console, or --namespace")
    if kube_context is not None and namespace is None:
        raise click.UsageError("--kube-context needs --namespace")
    urls = {"url": url, "amqp": amqp, "mqtt": mqtt}
    for kind, text in urls.items():
        if text is not None and (fault := fault_of_url(text, kind, SCHEMES[kind])):
            raise click.BadParameter(f"{text}: {fault}", param_hint="URL" if kind == "url" else f"--{kind}")
    if new_password_file is not None and (fault := readable_by_others(new_password_file)):
        raise click.BadParameter(f"{fault} and try again", param_hint="--password-file")
    contexts = Contexts.read()
    if name in contexts.by_name:
        remedy = f"`enmasse context remove {quote(name)}` removes it"
        end("context.name.in-use", f"there is a context {name!r} already; {remedy}")
    contexts.by_name[name] = Context(
        name=name, user=user, password_file=_whole(new_password_file), ca=_whole(ca), namespace=namespace,
        kube_context=kube_context, space=space, **urls,
    )  # fmt: skip
    contexts.write()
    done(f"added {name}; `enmasse context use {quote(name)}` makes it the current one", "added", name=name)


def _whole(file: str | None) -> str | None:
    """Return the full path of a file: commands run in other folders."""
    return None if file is None else str(Path(file).absolute())


@command.command("use")
@click.argument("name")
def use(name: str) -> None:
    """Make a context the current one; `local`: commands work on the suite on this machine again."""
    from enmasse.cli.contexts.contexts import Contexts

    contexts = Contexts.read()
    contexts.get(name)
    contexts.current = name
    contexts.write()
    done(f"commands work on {name} now", "chosen", name=name)


CONTEXTS = (
    Column("context", "name"), Column("current", "current", lambda current: "yes" if current else ""),
    *(Column(field, field) for field in FIELDS),
)  # fmt: skip


@command.command("list")
@list_options(CONTEXTS)
def list_(wanted: WantedRows) -> None:
    """List the contexts."""
    from enmasse.cli.contexts.contexts import LOCAL, Contexts

    contexts = Contexts.read()
    rows = [{"name": LOCAL, **dict.fromkeys(FIELDS)}]
    rows += [
        {"name": name, **{field: getattr(each, field) for field in FIELDS}}
        for name, each in sorted(contexts.by_name.items())
    ]
    wanted.show("contexts", [{**row, "current": row["name"] == contexts.current} for row in rows], CONTEXTS)


@command.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Remove a context. If it was the current one, commands work on the suite on this machine again."""
    from enmasse.cli.contexts.contexts import LOCAL, Contexts

    contexts = Contexts.read()
    if name == LOCAL:
        raise click.BadParameter("`local` stands for this machine and cannot be removed", param_hint="NAME")
    contexts.get(name)
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = LOCAL
    contexts.write()
    done(f"removed {name}", "removed", name=name)
