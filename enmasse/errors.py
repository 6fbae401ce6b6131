"""Catalogue of the errors that end a command, a start of the suite or a service: the id of each, what it means and what
to do.

The message that people see states the place and the values and ends with the id in brackets. An id is
`area.noun.state`. docs/errors.md is made from this catalogue by `python -m enmasse.errors`; tests/test_errors.py
compares it with the calls in the code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MARKED = re.compile(r"\[[a-z-]+\.[a-z-]+\.[a-z0-9-]+\]$")


@dataclass(frozen=True, slots=True)
class Error:
    """One kind of error."""

    id: str
    meaning: str
    action: str


AREAS = {
    "address": "Addresses",
    "backup": "`enmasse backup` and `enmasse restore`",
    "bench": "`enmasse bench`",
    "broker": "Embedded broker",
    "cluster": "Access to Kubernetes",
    "command": "Every command",
    "configserv": "Configuration service",
    "configuration": "Files of the configuration",
    "console": "Console: problems of its REST API",
    "context": "Contexts: suites elsewhere",
    "controller": "Storage controller",
    "deploy": "`enmasse deploy`",
    "flavor": "Flavors",
    "messages": "Sending and receiving",
    "mqtt": "MQTT clients",
    "retained": "Retained messages",
    "router": "Embedded router",
    "server": "Connections of commands to a server",
    "service": "Any service as a process",
    "space": "Address spaces",
    "spark": "`enmasse spark`",
    "start": "`enmasse up`",
    "subscription": "Subscriptions and MQTT sessions",
    "suite": "The running suite",
    "user": "Users",
}

ERRORS = (
    Error("address.messages.not-deleted", "The address was removed from the configuration, but its messages were not deleted.", "Start the suite or correct the reason, then repeat the command."),
    Error("address.messages.stopped", "Work on the messages of an address ended before it had done all of them.", "Correct the reason, and repeat the command for the others."),
    Error("address.name.in-use", "There is an address of this name already.", "Choose another name, or remove the address first."),
    Error("address.name.unknown", "There is no address of this name.", "`enmasse address list` shows the addresses; `enmasse address add` adds one."),
    Error("address.request.refused", "The address is there, and refuses what the command asks of it: it has no selectors, cannot be browsed, has no durable subscriptions, or another receiver has it alone.", "Do what the message says, or use an address of another type: `enmasse address show NAME`."),
    Error("backup.data.failed", "A part of the data cannot be copied; the backup is incomplete.", "Correct the reason, delete the incomplete backup, and repeat the command."),
    Error("backup.files.damaged", "A file of the backup is missing or has changed, or the backup was interrupted; nothing was restored.", "Use another backup."),
    Error("backup.folder.in-use", "The folder that the command would write to is not empty, or part of what is copied; nothing was written.", "Move its content away, or name another folder."),
    Error("backup.restore.failed", "A file cannot be read or written; the data folder was not made.", "Correct the reason and repeat the command."),
    Error("bench.address.failed", "The address cannot be measured: the server refuses it or cannot be reached.", "Correct the address, or start the server."),
    Error("bench.messages.missing", "No message came through in time.", "Check that the address is ready and has no other receivers."),
    Error("broker.data.not-usable", "The store of a broker cannot be opened.", "Correct the reason: permissions, room, or another process that uses the directory."),
    Error("broker.data.other-engine", "The data directory of a broker was written by another product.", "Start with the option `--broker` of that product, or give the broker an empty directory."),
    Error("cluster.api.failed", "The Kubernetes API cannot be reached or refused a request.", "Check context, permissions and network; nothing was changed."),
    Error("cluster.client.missing", "The Python package `kubernetes` is not installed.", "pip install '.[kubernetes]' in the checkout."),
    Error("cluster.configmap.conflict", "Another program kept changing the ConfigMap.", "Try again."),
    Error("cluster.configmap.missing", "There is no ConfigMap of this name with addresses.", "Name one of those listed."),
    Error("cluster.configmap.not-readable", "The ConfigMap with the state of configserv cannot be read.", "Check the permissions of the service account, and the API server."),
    Error("cluster.configmap.not-written", "The change would make the ConfigMap invalid or too large.", "Correct the content, or use another ConfigMap."),
    Error("cluster.context.missing", "No Kubernetes cluster is configured, or its configuration is invalid.", "Name a context of your kubeconfig, or set KUBECONFIG."),
    Error("command.folder.missing", "The current directory does not exist.", "Change to another one."),
    Error("command.home.missing", "The user has no home folder for default paths.", "Set HOME, or name the folder with its option."),
    Error("command.output.failed", "Standard output cannot be written.", "Check the file or program that the output goes to."),
    Error("configserv.data.damaged", "A damaged file of configserv cannot be set aside.", "Move it away; the configuration is read again from its files."),
    Error("configserv.data.newer-format", "The data of configserv was written by a newer EnMasse.", "Upgrade."),
    Error("configserv.data.not-writable", "configserv cannot write its data directory.", "Give it a directory that can be written."),
    Error("configuration.entry.conflict", "The entry keeps being changed by others; nothing was written.", "Repeat the command."),
    Error("configuration.entry.invalid", "An entry would be invalid; nothing was changed.", "Correct the fields that the message names."),
    Error("configuration.file.invalid", "A file of the configuration cannot be used, and there is no earlier valid one.", "Correct the file; `enmasse init` writes an example."),
    Error("configuration.file.missing", "A file of the configuration does not exist.", "Name the folder with --config; `enmasse init` writes one."),
    Error("configuration.file.not-json", "A file of the configuration is not a JSON object.", "Correct it first; nothing was changed."),
    Error("configuration.file.not-readable", "A file of the configuration cannot be read.", "Check its permissions."),
    Error("configuration.file.not-utf8", "A file of the configuration has text that is not UTF-8.", "Save it as UTF-8; nothing was changed."),
    Error("configuration.file.not-written", "A file of the configuration cannot be written.", "Check permissions and room; nothing was changed."),
    Error("configuration.folder.in-use", "The folder contains configuration files already.", "Choose another folder; nothing was written."),
    Error("configuration.folder.missing", "The configuration directory does not exist.", "`enmasse init DIR` makes one."),
    Error("configuration.folder.not-a-directory", "The configuration directory is a file.", "Name another one with --config."),
    Error("configuration.folder.not-readable", "The configuration directory cannot be read or made.", "Name a folder of this user with --config."),
    Error("configuration.folder.not-writable", "The folder for the configuration cannot be written.", "Choose a folder of this user."),
    Error("console.caller.busy", "The caller has as much under way as one caller may have.", "Wait until a part of it has ended, or end it."),
    Error("console.change.refused", "The entry would be invalid, or the operation is not possible for this address; nothing was changed.", "Correct what `errors` or `detail` names."),
    Error("console.etag.differs", "The entry was changed meanwhile.", "Read it again, and repeat the change with its new etag."),
    Error("console.etag.missing", "A change of an existing entry has no If-Match.", "Send the etag of the entry that the change is based on, or `*`."),
    Error("console.login.limited", "Users cannot be checked now.", "Try again."),
    Error("console.login.needed", "The caller is not logged in.", "Log in by `POST /api/v1/login`, or send user and password by HTTP Basic, or a bearer token."),
    Error("console.login.refused", "User, password or token is wrong, or the user has to wait after failures.", "Check them, and try again."),
    Error("console.message.not-taken", "The address takes no messages at the moment.", "Start a consumer, or make room in the queue, and send it again."),
    Error("console.message.refused", "The address does not take this message.", "See `detail`."),
    Error("console.method.unknown", "The resource does not have this method.", "See `/api/v1/openapi.json`."),
    Error("console.name.in-use", "There is an entry of this name already.", "Choose another name, or change the entry with If-Match."),
    Error("console.origin.refused", "The request may come from a page of another site.", "Call the console under its own host, and with the header X-CSRF-Token if a cookie logs in."),
    Error("console.permission.denied", "The caller's permissions do not cover this.", "`enmasse user allow` adds a permission."),
    Error("console.request.failed", "The console itself has failed.", "Report it with the line of its log that has the id in `detail`."),
    Error("console.request.invalid", "The request is invalid.", "Correct the parameter or field that `detail` names."),
    Error("console.request.too-large", "The request is too large.", "Send less at once."),
    Error("console.resource.unknown", "The resource does not exist, or the caller may not view it.", "Check the name."),
    Error("console.service.failed", "Another service of the suite has refused or not answered.", "See `detail`, and the log of the console."),
    Error("console.service.unavailable", "Another service of the suite is not reached.", "Try again; `enmasse status` shows what is not ready."),
    Error("console.type.unsupported", "The Content-Type of the request is not that of JSON.", "Send JSON."),
    Error("console.watchers.too-many", "There are too many open streams.", "Close some, or try again later."),
    Error("context.command.unsuitable", "The command cannot work on this context: it works on this machine only, or the context lacks a URL that it needs.", "Name another context with --context, `local` for this machine; or add the context with the URL."),
    Error("context.file.unusable", "The file with the contexts cannot be read or written.", "Correct what the message names."),
    Error("context.name.in-use", "There is a context of this name already.", "Choose another name, or remove it first."),
    Error("context.name.unknown", "There is no context of this name.", "`enmasse context list` shows the contexts; `enmasse context add` adds one."),
    Error("controller.brokers.not-readable", "The storage controller cannot read which brokers it has created.", "Make the file that the message names readable."),
    Error("controller.settings.invalid", "The settings of the storage controller are invalid.", "Correct the setting that the message names."),
    Error("deploy.command.interrupted", "The installation was interrupted.", "Repeat the command, or take it back with the command that the message names."),
    Error("deploy.helm.failed", "Helm failed.", "Correct the reason that Helm printed."),
    Error("deploy.helm.missing", "Helm is not on PATH.", "Install Helm 3.14 or newer."),
    Error("flavor.addresses.present", "Addresses use the flavor; nothing was changed.", "Give them another flavor with `enmasse address set NAME flavor=OTHER`, or remove them."),
    Error("flavor.name.in-use", "There is a flavor of this name already.", "Choose another name, or change the flavor with `enmasse flavor set`."),
    Error("flavor.name.unknown", "There is no flavor of this name.", "`enmasse flavor list` shows the flavors; `enmasse flavor add` adds one."),
    Error("messages.delivery.failed", "Messages were not accepted, or it is not known whether they were.", "See the reason; messages that were not acknowledged may have to be sent again."),
    Error("messages.delivery.missing", "Fewer messages arrived in time than the command waits for.", "Check that the address has messages, or wait longer with --timeout."),
    Error("messages.input.invalid", "A line of stdin is not a message in the form that `receive --json` prints.", "Correct the line that the message names, and send it and those after it again."),
    Error("messages.reply.missing", "No reply to a request came in time.", "Check that a program answers requests at this address, or wait longer with --timeout."),
    Error("mqtt.client.unknown", "No client of this name is connected, or several have this identifier.", "`enmasse mqtt clients --all` shows the clients."),
    Error("retained.messages.kept", "The filter matches many retained messages; none was cleared.", "Narrow the filter, or use --force."),
    Error("router.configuration.invalid", "The settings of a router have an entity that is invalid.", "Correct the entity and attribute that the message names."),
    Error("server.connection.failed", "The server cannot be reached, refused the client or closed the connection.", "Start the suite with `enmasse up`, or correct the address of the server."),
    Error("server.login.missing", "The server wants a user and password, and none was given.", "Set ENMASSE_USER and ENMASSE_PASSWORD_FILE, or write `user:password@` in the URL."),
    Error("server.login.refused", "The user is unknown, the password is wrong, the user may not connect, or has to wait after failures.", "Check both, and after several failures wait a minute; `enmasse user show NAME` shows whether there is such a user, `enmasse user password NAME` sets a password."),
    Error("server.login.unavailable", "The server cannot check users now: its authentication service does not answer, is starting or has too much to do.", "Try again; `enmasse status` shows whether the service is ready."),
    Error("server.login.unsuitable", "A user was given, and the server offers no login that proves a password without showing it on the network. Nothing was sent without the user.", "If it offers PLAIN, connect with TLS (amqps://). If it offers ANONYMOUS only, it has no users: leave the user out."),
    Error("server.operation.denied", "The user may not send to this address or receive from it.", "`enmasse user check NAME send ADDRESS` shows the rule; `enmasse user allow` adds a permission."),
    Error("service.port.not-available", "A service cannot listen on its port.", "Choose another port in the setting that the message names."),
    Error("service.redis.missing", "A store in Redis needs the Python package `redis`.", "pip install '.[redis]' in the checkout."),
    Error("service.setting.invalid", "A setting of a service is invalid.", "Correct the setting that the message names."),
    Error("service.traces.invalid", "A variable of OpenTelemetry has a value that cannot be used.", "Correct the variable that the message names."),
    Error("service.traces.missing", "Traces are on, and the Python packages of OpenTelemetry are missing.", "pip install '.[otel]' in the checkout, or leave out the setting `traces`."),
    Error("space.name.in-use", "There is an address space of this name already.", "Choose another name, or change the space with `enmasse space set`."),
    Error("space.name.unknown", "There is no address space of this name, or you may not view it.", "`enmasse space list` shows those that you may view."),
    Error("space.user.missing", "The command works in an address space as one of its users only.", "Set ENMASSE_USER and ENMASSE_PASSWORD_FILE, or name the user in the URL."),
    Error("spark.archive.failed", "The archive for executors cannot be written.", "Correct the reason, or name another file."),
    Error("spark.chart.failed", "A chart of a pipeline cannot be drawn.", "Correct the reason that the message states."),
    Error("spark.java.missing", "There is no Java to run Spark.", "Install Java 17 or newer, or set JAVA_HOME."),
    Error("spark.job.failed", "A Spark job has ended with an error.", "Correct the reason that the message states, and start the job again."),
    Error("spark.job.in-use", "A job of this name runs already.", "Stop it, or choose another name with --name."),
    Error("spark.job.unknown", "There is no job of this name.", "`enmasse spark status` lists the jobs."),
    Error("spark.package.missing", "PySpark or PyArrow is not installed.", "pip install '.[spark]' in the checkout."),
    Error("start.data.in-use", "Another suite uses the data directory.", "Stop it, or give this suite its own directory with --data."),
    Error("start.data.missing", "The folder with the messages of a broker that ran is gone.", "Put it back, such as by mounting its disk. To start without these messages, delete the file that the message names."),
    Error("start.data.newer-format", "The data directory was written by a newer EnMasse.", "Use the newer version, or another directory."),
    Error("start.data.not-a-directory", "The data directory is a file.", "Choose another one with --data."),
    Error("start.data.not-writable", "The data directory cannot be made or written.", "Choose a directory of this user with --data."),
    Error("start.data.other-engine", "The data of a broker was written by another product.", "Start with the option `--broker` of that product, or with another data directory."),
    Error("start.data.unknown-format", "The directory is not a data directory of EnMasse, or it is damaged.", "Choose another one with --data, or correct the file."),
    Error("start.disk.full", "The disk of the data directory has too little room for a first start.", "Free space, or choose another disk with --data."),
    Error("start.engine.missing", "The chosen router or broker is not installed.", "Install it, or start with the embedded one."),
    Error("start.file.failed", "A file of the suite cannot be read or written.", "Check its permissions, and room."),
    Error("start.listen.anonymous", "`--listen` would let clients of other machines in without a password.", "Make users with `enmasse user add`, or start with --allow-anonymous."),
    Error("start.listen.not-available", "This machine does not have an address of `--listen`, or the name has no address.", "Name an address or a name of this machine."),
    Error("start.listen.not-served", "A protocol of `--listen` is not served: it needs TLS, or MQTT was left out.", "Add --tls auto or --tls-cert, or leave the protocol out."),
    Error("start.listen.plaintext", "`--listen` would open ports without TLS to other machines.", "Start with --tls auto or --tls-cert, or with --allow-plaintext."),
    Error("start.options.invalid", "Something is wrong in the options file, or options do not go together. At a reload nothing was changed.", "Correct what the message states."),
    Error("start.path.not-utf8", "The name of a file or folder is not UTF-8.", "Choose another name."),
    Error("start.port.in-use", "Another process uses a port of the suite.", "Stop it, or choose other ports with --port-offset."),
    Error("start.port.not-available", "The system refuses a port of the suite.", "Choose other ports with --port-offset."),
    Error("start.ports.used-up", "No internal port is free.", "Stop some processes."),
    Error("start.redis.missing", "--store needs the Python package `redis`.", "pip install '.[redis]' in the checkout."),
    Error("start.spaces.unprotected", "`--router qdrouterd` lets clients without credentials in, and there are address spaces, whose addresses these would reach.", "Add a user with `enmasse user add` before the start, or use the embedded router."),
    Error("start.spark.invalid", "There is something wrong in the file of the pipeline that `--with spark` runs.", "Correct what the message states, or name another file."),
    Error("start.spark.missing", "`--with spark` is given, but PySpark or Java is not installed.", "pip install '.[spark]' in the checkout, and install Java 17 or newer."),
    Error("start.tls.damaged", "A file of the certificates that `--tls auto` made is damaged or missing.", "Put it back from a backup, or delete the folder `tls` in the data folder; clients must trust the new CA then."),
    Error("start.tls.incomplete", "Only one of --tls-cert and --tls-key is given, or --tls-client-ca without TLS.", "Give what goes together, or leave it out."),
    Error("start.tls.invalid", "Certificate and key are not PEM, have a password or do not belong together; or the file of --tls-client-ca has no certificate in PEM.", "Correct the files."),
    Error("start.tls.not-readable", "The file with the certificate, the key or the CA of clients cannot be read.", "Check its permissions."),
    Error("start.traces.missing", "--traces needs the Python packages of OpenTelemetry.", "pip install '.[otel]' in the checkout."),
    Error("start.webhooks.invalid", "The file of --webhooks cannot be used.", "Correct what the message states."),
    Error("subscription.client.connected", "The client of the session is connected; nothing was deleted.", "Disconnect it, or use --force."),
    Error("subscription.filter.refused", "The server refused a topic filter: no address takes it, or its address does not allow this filter.", "Subscribe to an address that `enmasse address list` shows, or below a topic."),
    Error("subscription.messages.kept", "The subscription holds messages; nothing was deleted.", "Consume them, or use --force."),
    Error("subscription.name.unknown", "There is no subscription or session of this id.", "`enmasse subscription list` shows them."),
    Error("subscription.request.refused", "The server refused the request about subscriptions.", "See the reason."),
    Error("suite.http.unexpected", "Another program than the suite answers on the port for HTTP.", "Choose the suite with --port-offset."),
    Error("suite.http.unreachable", "The suite does not answer.", "Start it with `enmasse up`, or choose it with --port-offset."),
    Error("suite.logs.missing", "There is no log of this component.", "Name one of those listed, or none for all."),
    Error("suite.logs.not-readable", "The folder with the logs cannot be read.", "Run the command as the user of `enmasse up`, or name the data folder with --data."),
    Error("suite.reload.refused", "The options were not read again; nothing was changed.", "Correct what the message states, and repeat the command."),
    Error("suite.reload.unfinished", "The options are in force, but a process does not listen yet where they say, or still listens where it did before.", "See `enmasse status`, and the log of the process that it names."),
    Error("suite.restart.refused", "The component was not restarted.", "See the reason."),
    Error("suite.restart.unfinished", "The component is not ready again within 200 s. The order stays in force.", "See `enmasse status`, and its log: `enmasse logs COMPONENT`."),
    Error("suite.scale.refused", "The number of processes is not possible.", "See the reason."),
    Error("suite.scale.unfinished", "Processes have not come, or not left, within 200 s. The order stays in force.", "See `enmasse status`, and the logs of those that it names."),
    Error("suite.status.not-ready", "The suite was not ready in the time of --wait.", "See the reasons above it; `enmasse status` shows all."),
    Error("suite.stop.denied", "The suite runs as another user.", "Run the command as the user of `enmasse up`."),
    Error("suite.stop.incomplete", "The suite has not ended in time.", "`enmasse logs` shows what it waits for; a second `enmasse down` ends its processes at once."),
    Error("user.group.alone", "A group would be the first entry of users.json, and no client could log in.", "Add a user first."),
    Error("user.name.in-use", "There is a user or group of this name already.", "Choose another name, or set its password or permissions."),
    Error("user.name.missing", "An API token is of a user, and none was named.", "Give --user USER."),
    Error("user.name.unknown", "There is no user or group of this name.", "`enmasse user list` shows the users and groups."),
    Error("user.operation.denied", "`enmasse user check`: the user may not do this on the address.", "`enmasse user allow` adds a permission; the message names a rule that denies."),
    Error("user.password.missing", "No password was given.", "Name a file with --password-file, or use --generate."),
    Error("user.password.not-readable", "The file with the password cannot be read.", "Check its name and permissions."),
    Error("user.password.not-written", "The file of --output exists, or cannot be written.", "Choose another one; if the message comes after the change, set another password with `enmasse user password`."),
    Error("user.password.unsuitable", "The text cannot be a password.", "Choose another one."),
    Error("user.permission.unknown", "`enmasse user revoke`: the entry has no such permission; nothing was changed.", "`enmasse user show NAME` shows the permissions; write the address as there."),
)  # fmt: skip

CATALOGUE = {error.id: error for error in ERRORS}

INTRODUCTION = """# Errors

The message of an error that ends a command, a start of `enmasse up` or a service states the place and the values, and
ends with one of the ids below, in brackets. [cli.md](cli.md) has the exit statuses. Problems of single entries of the
configuration have no id (`enmasse status` shows them with file, entry and field), nor has wrong usage of a command.

This page is made from `enmasse/errors.py` by `make event-docs`.
"""


def marked(id: str, text: str) -> str:
    """Return `text` with the id of its error; unchanged if it ends with an id, of the error that caused this one."""
    return text if _MARKED.search(text) else f"{text} [{id}]"


def page() -> str:
    """Return the text of docs/errors.md."""
    parts = [INTRODUCTION]
    for area, title in AREAS.items():
        parts.append(f"\n## {title}\n\n| error | meaning | what to do |\n|---|---|---|\n")
        for error in ERRORS:
            if error.id.partition(".")[0] == area:
                parts.append(f"| `{error.id}` | {error.meaning} | {error.action} |\n")
    return "".join(parts)


def main() -> None:
    """Write the page to stdout."""
    import sys

    sys.stdout.write(page())


if __name__ == "__main__":
    main()
