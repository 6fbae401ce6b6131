"""Catalogue of log events: the id of each, its level, its fields, what it means and what to do.

A program logs an id with fields (`log.warning("lease.renewal.failed", reason=…)`); the sentences are here. An id is
`area.noun.verb`, the verb in the past. docs/events.md is made from this catalogue by `python -m enmasse.logs.events`;
tests/test_events.py compares it with the calls in the code.
"""

from __future__ import annotations

from dataclasses import dataclass

NOTHING = "Nothing."
REPORT = "Report it, with the traceback in the field `exception`: an error in EnMasse."


@dataclass(frozen=True, slots=True)
class Event:
    """One kind of log line. `fields` leaves out those that all events of a logger share, such as `service` or `peer`."""

    id: str
    level: str
    fields: str
    """Names, divided by blanks."""
    meaning: str
    action: str


AREAS = {
    "agent": "Router agent (ragent)",
    "amqp": "AMQP connections of router, broker and gateway",
    "audit": "Audit log",
    "authserv": "Authentication service",
    "broker": "Embedded broker",
    "client": "Refusals of clients, by router, broker and gateway",
    "coap-gateway": "CoAP gateways",
    "component": "Processes that `enmasse up` supervises",
    "configserv": "Configuration service",
    "console": "Console",
    "control": "Connections of the control plane",
    "controller": "Storage controller",
    "feed": "Feeds of configuration",
    "gateway": "Gateways, towards the router and the supervisor",
    "http": "Health and metrics over HTTP",
    "http-gateway": "HTTP gateways",
    "identity": "Who a peer is, and what it may do",
    "kubernetes": "Access to the Kubernetes API",
    "lease": "Election of the leader in Kubernetes",
    "live": "Live state, which the console shows",
    "log": "Logs",
    "mqtt": "MQTT gateway, towards clients",
    "mqtt-lwt": "Last-will service",
    "process": "Any service as a process",
    "reconcile": "Reconciling of brokers and routers",
    "router": "Embedded router",
    "spark": "Source of Structured Streaming, in the log of the driver",
    "stomp-gateway": "STOMP gateways",
    "store": "Store of the MQTT services (SQLite or Redis)",
    "subserv": "Subscription service",
    "suite": "`enmasse up` as a whole",
    "tls": "Certificates",
    "traces": "Traces by OpenTelemetry",
}

EVENTS = (
    Event("agent.auto-links.doubled", "info", "router connections", "Auto-links of a router have two links each; their connections are closed before the auto-links are deleted.", NOTHING),
    Event("agent.listing.failed", "warning", "reason", "A broker that is managed by hand cannot be asked for its queues.", "Check the broker and the management access of the router's connector to it."),
    Event("agent.peer.rejected", "warning", "peer product", "A program that does not state to be a router connected to an agent without the setting `peers`.", "Find the program at `peer` and correct the address it connects to."),
    Event("agent.router.duplicated", "error", "router peer", "Routers with the same id replace each other repeatedly.", "Give each router its own id."),
    Event("agent.router.replaced", "warning", "router peer", "A router with the id of a connected one connected; the older connection was closed.", "Nothing after a restart of the router; otherwise look for two routers with one id."),
    Event("amqp.accept.failed", "error", "error", "No connection can be accepted: descriptors or memory are used up. Reported once until one is accepted.", "Raise the limit of open files, or reduce the number of clients."),
    Event("amqp.connection.creation-failed", "error", "", "An accepted connection could not be set up.", REPORT),
    Event("amqp.handler.failed", "error", "peer", "A callback raised; its link, session or connection was ended with amqp:internal-error.", REPORT),
    Event("amqp.peer.stalled", "warning", "peer buffered", "A peer does not read; `buffered` bytes wait for it and nothing more is written.", "Look at the peer if this continues."),
    Event("audit.broker.ordered", "info", "who role from what outcome result space", "A process or an operator has deleted a queue or address, removed messages or closed a connection by management of the broker `service`. `result`: mostly the number of messages.", NOTHING),
    Event("audit.configuration.changed", "info", "who from what outcome added changed removed space", "Entries of the file `from` were added, changed or removed, and are in force. Who edits a file is not known. A restart with unchanged files is no change.", NOTHING),
    Event("audit.configuration.ordered", "info", "who role from what outcome space", "A user of the console has changed entries of the configuration, or wanted to. `from`: host of the client; a removed entry has a hyphen in front.", NOTHING),
    Event("audit.connection.closed", "info", "who role from what outcome space", "A user of the console has had the connection of a client closed.", NOTHING),
    Event("audit.login.accepted", "info", "who from what outcome count space", "A client has proved to be the user `who`.", NOTHING),
    Event("audit.login.refused", "info", "who from what outcome count space", "A client has not proved its identity. `who`: the name that it states, if there is such a user or a certificate has it; another name may be a password. `outcome` `waiting`: refused unseen, also with the right password, because of earlier failures or of too many attempts under way.", "Nothing if it is rare. Otherwise look for a client with an old password, or for attempts to guess one."),
    Event("audit.messages.forced", "info", "who role from what outcome addresses space", "Addresses may be deleted with their messages, by order of the process `who`, or of the ConfigMap `from`.", NOTHING),
    Event("audit.messages.ordered", "info", "who role from what outcome result space", "A user of the console has had messages of a queue removed, moved or sent back to where they came from. `result`: their number. `outcome` is `cancelled` if a user, or the end of the console, has broken it off.", NOTHING),
    Event("audit.peer.refused", "info", "who role from what outcome count", "A process or operator at an inner listener of `service` was refused. `who` null: it has not proved its identity.", "Nothing if a process was just restarted; otherwise find the program at `from`."),
    Event("audit.request.refused", "info", "who from what outcome count", "A request to the HTTP endpoint of `enmasse up` was refused: it has not the operator's secret.", "Find the program at `from`."),
    Event("audit.router.ordered", "info", "who role from what outcome", "An entity of the router `service` was created, changed or deleted, or a connection closed, by management, and not by the router agent.", NOTHING),
    Event("audit.session.deleted", "info", "who role from what outcome space", "A user of the console has deleted a session, a subscription, or the retained message of a topic.", NOTHING),
    Event("audit.session.ordered", "info", "who role from what outcome space", "An operator has deleted a subscription or session, cleared retained messages or disconnected an MQTT client.", NOTHING),
    Event("audit.suite.ordered", "info", "who role from what outcome addresses space", "An operator has given an order over HTTP: another number of processes, options read again, or the deletion of addresses with their messages. `outcome` states what became of it.", NOTHING),
    Event("audit.token.changed", "info", "who role from what outcome space", "A user of the console has made or removed an API token. `from`: host of the client.", NOTHING),
    Event("audit.users.changed", "info", "who from what outcome added removed passwords tokens permissions more space", "Users and groups of users.json, of an address space if `from` has a folder, were added or removed, or have other passwords, API tokens or permissions. The fields have their names.", NOTHING),
    Event("audit.will.dropped", "info", "who from what outcome count space", "Wills of the user `who` were not published, because the user is gone or may no longer send there. `from`: the client.", NOTHING),
    Event("authserv.code.not-redeemed", "warning", "issuer reason", "An issuer could not redeem the code of a browser that has logged in there. Logged once for each reason.", "Check the issuer, and `client_id`, `client_secret` and `audience` of its entry in issuers.json."),
    Event("authserv.directory.failed", "warning", "directory reason", "A directory (LDAP) does not answer, or not as it should: its users get a temporary failure. `directory`: its URL. Logged when the reason changes.", "Check the directory, and its entry in issuers.json. It is tried again every 2 s."),
    Event("authserv.keys.not-fetched", "warning", "issuer reason", "The keys of an issuer of tokens cannot be fetched. Those that are known stay in force.", "Check the issuer, and its entry in issuers.json."),
    Event("authserv.login.refused", "info", "user peer mechanism outcome space", "A client has not proved its identity. `user`: the name that it states, if there is such a user; `peer`: its address, if the router or gateway states it. `outcome` `waiting`: refused unseen, also with the right password, because of earlier failures or of too many attempts under way.", "Nothing if it is rare. Otherwise look for a client with an old password, or for attempts to guess one."),
    Event("authserv.password.not-checked", "warning", "issuer reason", "An issuer could not check a password: the client got a temporary failure. Logged once for each reason.", "Check the issuer, and `client_id`, `client_secret` and `audience` of its entry in issuers.json."),
    Event("broker.answer.failed", "error", "first count", "The sender of stored messages could not be notified.", REPORT),
    Event("broker.arrival.failed", "error", "message count", "Received messages could not be given to their queues.", REPORT),
    Event("broker.backup.failed", "warning", "directory reason", "A backup could not be made; it is tried again while the backup directory is empty.", "Correct the reason, mostly room or permissions."),
    Event("broker.backup.made", "info", "directory segments", "A backup of the store was made.", NOTHING),
    Event("broker.catalogue.write-failed", "warning", "directory reason", "The catalogue of addresses and queues could not be written; it is written with the next change.", "Check the disk."),
    Event("broker.dead-letter-queue.not-created", "warning", "target queue reason space", "The queue for dead letters or expired messages could not be created.", "Check the settings of this address."),
    Event("broker.disk.filled", "warning", "broker", "The disk is full up to the reserve: messages are refused, consumers are served.", "Free space or consume messages."),
    Event("broker.disk.freed", "warning", "broker", "The disk has room again: messages are accepted.", NOTHING),
    Event("broker.housekeeping.failed", "error", "directory", "A round of maintenance of the store failed; the next one follows.", REPORT),
    Event("broker.job.failed", "error", "key", "Work of the broker that is done in portions failed with an unexpected error.", REPORT),
    Event("broker.journal.callback-failed", "error", "", "A callback after a commit raised.", REPORT),
    Event("broker.journal.commit-failed", "error", "directory reason", "Messages could not be written; their senders get `modified`. Reported once until a commit succeeds.", "Check the disk."),
    Event("broker.journal.copy-failed", "warning", "file reason", "A damaged segment could not be copied to the folder `damaged`.", "Check room and permissions of the data directory."),
    Event("broker.journal.damage-found", "warning", "file what copy", "A part of a segment is damaged; `what` states the place and the messages affected, `copy` the file kept.", "Check the disk; see docs/operations.md about losses."),
    Event("broker.journal.tail-discarded", "info", "file offset bytes", "Bytes that were being written at a crash were discarded. They had not been acknowledged, unless the disk damaged what it wrote in the last half second.", "Nothing after a crash of the process. After a power cut on a disk that you do not trust, compare with the senders."),
    Event("broker.loss.not-recorded", "warning", "file what queue reason space", "A loss of messages could not be written to the list of losses.", "Note `what` and `queue`; check the disk."),
    Event("broker.management.failed", "error", "broker", "A management request failed with an unexpected error.", REPORT),
    Event("broker.message-ids.not-written", "warning", "file reason", "The file with the next message id could not be written; the store was opened without it.", "Check the disk."),
    Event("broker.message.lost", "error", "queue message address space", "A stored message is missing or damaged. It is counted and listed among the losses.", "Check the disk; see docs/operations.md about losses."),
    Event("broker.message.malformed", "error", "queue message dead reason space", "A stored message cannot be decoded; it became a dead letter if `dead`, otherwise it is delivered unchanged.", "Find its sender."),
    Event("broker.message.not-annotated", "warning", "queue message count reason space", "The message-annotations of an outcome `modified` were not added to the message: it cannot be read now, or they are too many. Reported for the first message of a queue, then at most once a minute; `count` includes those since the last report.", "See `reason`."),
    Event("broker.message.read-failed", "warning", "queue message reason space", "A message cannot be read now; its queue waits and tries again.", "Check the disk."),
    Event("broker.messages.not-stored", "error", "messages reason", "A commit failed; the senders of these messages get `modified`.", "Check the disk."),
    Event("broker.paging.failed", "warning", "address reason space", "A message could not be moved from memory to disk; it stays in memory.", "Check the disk."),
    Event("broker.peers.absent", "info", "", "The setting `peers` is absent: whoever reaches the broker's port may do everything.", "Nothing if only trusted programs reach the port."),
    Event("broker.reply.dropped", "info", "broker address", "A management reply was dropped: its address does not exist, or too many replies wait there.", "Let the client read its replies."),
    Event("broker.segment.compaction-failed", "warning", "segment reason", "A segment cannot be read for compaction; it is tried again later.", "Check the disk."),
    Event("broker.segment.deletion-failed", "warning", "directory segments reason", "Segments that are no longer needed could not be deleted.", "Check permissions of the data directory."),
    Event("broker.segment.retained", "warning", "segment bytes directory", "A segment stays after its compaction because messages in it are unreadable; it goes when they are removed.", "Check the disk."),
    Event("broker.segment.summary-failed", "warning", "file reason", "The summary of a segment could not be written; the next start reads the whole segment.", "Check the disk."),
    Event("broker.store.failed", "warning", "reason", "The data directory has no space, was deleted or replaced, or cannot be used: messages are refused.", "Correct the reason."),
    Event("broker.store.recovered", "warning", "directory", "The data directory can be used again.", NOTHING),
    Event("broker.subscription.taken-over", "warning", "queue client by consumer space", "A newer link of the same client took a subscription over; the older link ended with `amqp:link:stolen`.", "Give each client its own container id if both are to run."),
    Event("broker.tick.failed", "error", "", "A round of timed work (expiry, redelivery) failed.", REPORT),
    Event("broker.transaction.failed", "error", "space", "A transaction could not be committed for an error of the broker; it is rolled back.", REPORT),
    Event("broker.transaction.outcome-failed", "error", "queue space", "An outcome of a committed transaction failed; its messages are delivered again.", REPORT),
    Event("client.closed", "info", "peer user client by space", "An operator (`by`) has had the connection of a client closed; the client may connect again.", NOTHING),
    Event("client.refusals.omitted", "info", "count", "Refusals that have no line of their own: there were too many different ones within a minute, or of one peer.", "Look at the clients of the lines before."),
    Event("client.refused", "info", "what peer user client address condition reason count space proved", "A client was refused something, or its connection, a session or a link of it was ended for an error or a limit. The first refusal of (`what`, `peer`, `user`, `client`, `address`, `condition`, `reason` but for its numbers) has a line at once, those after it one a minute, with their number in `count`. `what`: connect, send, receive (links), message, publish, subscribe, session, will, manage, close; `client`: container-id or client identifier; `peer`: host and port of the newest one, of which the port makes no other kind. `condition` begins with `tls:` if TLS was not agreed. `user` is empty before a login, unless a certificate was verified: the user that this names, whether there is one or not. `proved` false: the client has named this user, and did not prove to be it; with an empty `user` it has named one that does not exist: such a name may be a password, and is not repeated.", "See `reason`. `enmasse user check` shows which rule decides about a permission; an address that is not found is to be created, or the client corrected."),
    Event("coap-gateway.observation.failed", "error", "peer", "Handling a message to an observer failed; this observation was ended.", REPORT),
    Event("coap-gateway.request.failed", "error", "peer", "A request could not be answered because of an unexpected error; it got the code 5.00.", REPORT),
    Event("component.process.ended", "error", "reason restart_after restarts", "A process ended unexpectedly; it is restarted after `restart_after` seconds.", "Read its log."),
    Event("component.process.hung", "error", "pid seconds", "A process has not answered its health check for `seconds`; it is killed and started again.", "Look at the disk and at the load of the machine, and at the last lines of the process's log; report it if it repeats."),
    Event("component.process.killed", "error", "pid seconds", "A process did not stop within `seconds` and was killed.", "Read its log."),
    Event("component.process.leaving", "info", "pid counts", "A process was ordered to leave: it hands its clients on, and ends then (`component.process.stopped`). `counts`: what it has.", NOTHING),
    Event("component.process.restarted", "info", "", "A process ended because an operator had ordered a restart, and is started again.", NOTHING),
    Event("component.process.started", "info", "pid", "A process was started.", NOTHING),
    Event("component.process.stopped", "info", "", "A process stopped as requested.", NOTHING),
    Event("component.process.suspended", "error", "pid seconds", "A process that clients wait for has been stopped by a signal (SIGSTOP) for `seconds`; it is killed and started again.", "Find out who stops it."),
    Event("component.readiness.gained", "info", "pid detail", "A process became ready.", NOTHING),
    Event("component.readiness.lost", "info", "pid detail", "A process is running and not ready; `detail` has the reason.", "See `enmasse status` if it continues."),
    Event("configserv.configuration.changed", "info", "file added changed removed more space", "Entries in force changed; names beyond the first are counted in `more`.", NOTHING),
    Event("configserv.configuration.loaded", "info", "addresses flavors", "The first complete configuration is in force.", NOTHING),
    Event("configserv.data.set-aside", "error", "file reason kept lost", "A file or key with damaged state was renamed to `kept`; `lost` states what this means.", "Restore it from a backup if it is needed."),
    Event("configserv.entries.rejected", "warning", "count", "This many more invalid entries were found than are logged one by one.", "See `enmasse status` or `enmasse config check`."),
    Event("configserv.entry.rejected", "warning", "file entry field line reason applies space", "An entry of the configuration is invalid; its last valid version stays in force.", "Correct the entry."),
    Event("configserv.force.not-saved", "error", "reason", "The list of forced deletions could not be saved; it is in force until configserv restarts.", "Check the disk."),
    Event("configserv.force.ordered", "info", "by addresses", "A ConfigMap orders the deletion of addresses with their messages.", NOTHING),
    Event("configserv.report.rejected", "warning", "peer link reason", "A report of a controller cannot be decoded.", "Check that all components have the same version."),
    Event("configserv.role.changed", "info", "target role instance before", "Another instance of a controller reports for a role.", NOTHING),
    Event("configserv.snapshot.rejected", "warning", "feed peer condition description", "A follower of a feed rejected a snapshot.", "Read the follower's log; check that all components have the same version."),
    Event("configserv.status.conflicted", "warning", "name", "No status is written: a ConfigMap of this name belongs to another owner.", "Rename or delete that ConfigMap."),
    Event("configserv.status.not-written", "warning", "reason", "The status of a ConfigMap could not be written; it is tried again.", "Check the API server and the service account."),
    Event("console.history.lost", "warning", "file error", "The file with the numbers of addresses over time could not be read or written. One that cannot be read is kept with `.damaged` at the end of its name, and charts begin again.", "Look at permissions and free space of the folder."),
    Event("console.request.failed", "error", "path id", "A request could not be answered because of an error in the console.", REPORT),
    Event("console.stream.closed", "info", "who path reason space", "A stream of the API was closed because its client does not read.", "Look at the client: it holds the stream open, but does not process what comes."),
    Event("console.token-uses.lost", "warning", "file error", "The file with the last uses of API tokens could not be read or written: `enmasse token list` shows later ones only.", "Look at permissions and free space of the folder."),
    Event("console.webhook.dropped", "warning", "webhook count", "More events wait for the receiver of a webhook than are kept: the oldest were dropped.", "See why the receiver takes nothing; the next message that it gets has the number."),
    Event("console.webhook.failed", "warning", "webhook host error", "A message of a webhook was not taken; it is tried again, after 1 s to 5 min.", "Correct the receiver, or the URL in the file of `--webhooks`."),
    Event("console.webhook.gone", "error", "webhook host", "The receiver of a webhook has answered 410 (gone): nothing more is posted to it until the console starts again.", "Correct the URL in the file of `--webhooks`, or remove the webhook there, and restart."),
    Event("console.webhook.not-saved", "warning", "file error", "What waits for the receivers of webhooks could not be saved: after a restart of the console it is lost, or comes twice.", "Look at permissions and free space of the folder."),
    Event("console.webhook.recovered", "info", "webhook", "The receiver of a webhook takes messages again.", NOTHING),
    Event("console.webhook.refused", "warning", "webhook host error", "The receiver of a webhook has refused a message for good, five times: it was put aside, and the next ones are sent.", "See why the receiver refuses it, such as by its size; correct the receiver, or the webhook."),
    Event("control.connection.failed", "debug", "reason", "A connection could not be made; it is tried again.", "Look at the peer if this continues."),
    Event("control.connection.lost", "info", "reason", "A connection was lost; it is made again.", NOTHING),
    Event("control.connection.refused", "warning", "reason", "This process and its peer do not accept each other's credentials. Reported once until a connection is made; it is tried again.", "Compare the settings `credential` here and `peers` there: both files must be of one start of the suite. Certificates: the log of the peer has the reason."),
    Event("control.conversation.ended", "info", "reason", "Work over a connection ended with an error of the peer; it begins again.", "See `reason` if it continues."),
    Event("control.conversation.failed", "error", "", "Work over a connection failed with an unexpected error.", REPORT),
    Event("control.handler.failed", "error", "peer", "A handler of a connection raised; the connection was closed.", REPORT),
    Event("control.reply.unreadable", "warning", "peer", "A management reply cannot be decoded; the request times out.", "Check the version of the peer."),
    Event("control.report.refused", "warning", "target reason", "configserv refused a report; with the next change everything is reported again.", "See `reason`: placements are refused while brokers.json exists."),
    Event("control.role.taken-over", "warning", "peer role", "Another peer reported for this controller's role; the controller reports in full again.", "Find out which process at configserv uses the role."),
    Event("controller.address.deletion-failed", "warning", "address reason space", "A broker refused to delete an address; it is tried again.", "See `reason`."),
    Event("controller.address.left-behind", "warning", "address broker space", "An address was removed from a broker that is managed by hand; its queue and messages stay there.", "Delete them on the broker if they are not needed."),
    Event("controller.broker.drift-corrected", "warning", "broker", "An applied object of a broker was changed by another client and is applied again.", "Find out which client changes it."),
    Event("controller.manifest.unreadable", "error", "broker reason", "The manifest that was applied for a broker cannot be read.", "See docs/kubernetes.md; the broker is left unchanged."),
    Event("controller.object.kept", "warning", "kind name", "An object of a removed broker is not deleted because it has another owner.", "Delete it if it is not needed."),
    Event("controller.processes.unreadable", "warning", "file reason", "The list of running brokers cannot be read; the last one stays in use.", "Check that `enmasse up` runs and its data directory is readable."),
    Event("feed.server.unreachable", "info", "reason", "The configuration service cannot be reached; the last configuration stays in force.", "Check configserv if it continues."),
    Event("feed.snapshot.refused", "error", "reason", "A snapshot of a feed is invalid; the last valid one stays in force.", "Check that all components have the same version."),
    Event("gateway.client.failed", "error", "client space", "Handling a message or an answer for one client failed; its connection was closed.", REPORT),
    Event("gateway.default.waits", "info", "name reason space", "`mqttDefault` has moved to the address `name`. The topics that no other address takes go to the one before until the subscription service has bound all subscribers at the new one; it is asked every second.", "Check subserv and the broker of the address if it continues."),
    Event("gateway.leave.began", "info", "connections", "A gateway of HTTP or STOMP was ordered to leave: it accepts no further connections, and ends those that are open a few at a time.", NOTHING),
    Event("gateway.leave.ended", "info", "moved left seconds", "The gateway has handed its clients on: `moved` connections were ended one by one, `left` are closed at once.", NOTHING),
    Event("gateway.live.not-offered", "warning", "reason", "The router, a Qpid Dispatch, has not made the link route to the live state of this gateway: the console does not show its clients.", "See `reason`; it is tried again with the next connection."),
    Event("gateway.login.failed", "warning", "reason", "A login has no answer of the authentication service; the client was refused (0x88). Further failures are not logged until a login has an answer.", "Check authserv."),
    Event("gateway.message.discarded", "error", "reason", "A message of the subscription service cannot be decoded.", "Check that gateway and subserv have the same version."),
    Event("gateway.packet-ids.refused", "error", "reason", "The subscription service refused changes of packet ids.", "Check the store of subserv."),
    Event("gateway.request.failed", "error", "", "A request of a session failed with an unexpected error.", REPORT),
    Event("gateway.router.unreachable", "info", "reason", "The router cannot be reached; it is tried again.", "Check the router if it continues."),
    Event("gateway.session.revoked", "info", "client reason space", "A client was disconnected: its user was removed or has another password, or a subscription is no longer allowed.", NOTHING),
    Event("gateway.sessions.disconnected", "info", "reason", "The subscription service cannot be reached; it is tried again.", "Check subserv if it continues."),
    Event("gateway.subscription.end-postponed", "info", "client reason space", "A subscription that is no longer allowed could not be ended. Nothing is delivered by it, and it is tried again when the session is resumed.", "Check subserv if it continues."),
    Event("gateway.subscription.ended", "info", "client filter space", "A stored session was resumed with a subscription that is no longer allowed; it was ended.", NOTHING),
    Event("gateway.wills.disconnected", "info", "reason", "The last-will service cannot be reached; it is tried again.", "Check mqtt_lwt if it continues."),
    Event("http-gateway.connection.failed", "error", "peer", "Handling a client's connection failed; this connection was closed.", REPORT),
    Event("http-gateway.request.failed", "error", "peer", "A request could not be answered because of an unexpected error; it got the status 500.", REPORT),
    Event("http.request.failed", "error", "path", "A request for health or metrics failed with an unexpected error.", REPORT),
    Event("identity.certificate.unsuitable", "info", "peer reason", "A client has presented a verified certificate that names no user.", "Issue one whose subject has one common name, the user's (docs/identity.md)."),
    Event("identity.peer.refused", "warning", "peer name role reason", "A peer was refused a connection, or what it asked for. `name` and `role`: its credential; without a role it has proved none, and `name` is what it states.", "Find the program at `peer`. One of the suite needs its credential, see docs/identity.md."),
    Event("kubernetes.event.not-sent", "warning", "reason", "A Kubernetes event could not be created.", "Check the permissions of the service account."),
    Event("kubernetes.object.warned", "warning", "about reason message", "A warning about an object, which is also sent as a Kubernetes event.", "See `message`."),
    Event("kubernetes.watch.failed", "error", "", "A watch failed with an unexpected error; it begins again.", REPORT),
    Event("kubernetes.watch.interrupted", "warning", "reason", "Objects cannot be watched; the last known ones stay in use.", "Check the API server and the permissions of the service account."),
    Event("kubernetes.watch.restarted", "info", "reason", "The API server no longer has the revision of a watch; the objects are listed again.", NOTHING),
    Event("lease.acquired", "info", "instance", "This instance leads.", NOTHING),
    Event("lease.awaited", "info", "holder reason", "This instance stands by: `holder` leads, or the Lease cannot be read for `reason`.", NOTHING),
    Event("lease.release.failed", "warning", "reason", "The Lease was not released at the end; it expires.", NOTHING),
    Event("lease.renewal.failed", "warning", "reason", "The Lease was not renewed; it is tried again until it expires.", "Check the API server."),
    Event("live.answer.unreadable", "warning", "broker reason", "A broker that the console follows answers otherwise than Artemis; it is asked again seconds later.", "Check which product and version it is."),
    Event("live.connections.unknown", "warning", "broker reason", "The connections at a broker of Artemis cannot be listed; it is asked again seconds later, and queues are still shown.", "Check the broker."),
    Event("live.look.failed", "error", "", "A look at what is live failed with an unexpected error; followers get nothing new until the next one, a second later.", REPORT),
    Event("live.message.refused", "error", "reason", "A message with live state cannot be read and was rejected.", "Check that the processes have the same release."),
    Event("log.lines.dropped", "warning", "count", "Log lines were dropped, because standard error was not read.", "Check the reader of the log."),
    Event("mqtt-lwt.lane.failed", "error", "address space", "Publishing wills to an address failed with an unexpected error; it begins again.", REPORT),
    Event("mqtt-lwt.message.missing", "error", "client id space", "A will cannot be published: its message is not in the store.", "Check the store."),
    Event("mqtt-lwt.publishing.interrupted", "info", "address reason space", "Wills for an address cannot be published now; they are tried again.", NOTHING),
    Event("mqtt-lwt.request.refused", "warning", "link reason space", "A request of a client or gateway was refused.", "Correct the client."),
    Event("mqtt-lwt.service.failed", "error", "", "The service failed with an unexpected error; wills are read from the store again.", REPORT),
    Event("mqtt-lwt.space.removed", "info", "space wills", "An address space was removed: its wills are removed.", NOTHING),
    Event("mqtt-lwt.store.failed", "error", "reason", "The store failed; wills are read again when it can be used.", "Check the store."),
    Event("mqtt-lwt.will.dropped", "warning", "client to will space", "A will was dropped because no address matches its topic.", "Create the address, or correct the client's will topic."),
    Event("mqtt-lwt.will.not-accepted", "info", "address reason space", "An address did not accept a will; it is sent again.", NOTHING),
    Event("mqtt-lwt.will.not-allowed", "warning", "client user to reason count space", "A will was dropped: its user is gone, or may no longer send there. Those of one user are logged once a minute; `count`: how many.", "Nothing if it should be so. Otherwise `enmasse user check` shows which rule decides, and `enmasse user allow` changes it."),
    Event("mqtt-lwt.will.unreadable", "error", "client will reason space", "A stored will cannot be read and is left in the store.", "Restore the store from a backup, or let the client send its will again."),
    Event("mqtt.client.closed-for-memory", "info", "client peer bytes space", "Clients do not read and the output that waits for them reached the limit; this client had the most.", "Look at the client; raise the limit if many clients read slowly."),
    Event("mqtt.client.stalled", "debug", "client peer space", "A client does not read; its connection was closed.", "Look at the client."),
    Event("mqtt.clients.spread", "info", "clients surplus gateways", "Another gateway came: of the `clients` here `surplus` are closed, a few at a time, so that they connect to any gateway.", NOTHING),
    Event("mqtt.connection.closed", "debug", "client peer reason text space", "The gateway closed a connection.", "See `text`."),
    Event("mqtt.connection.failed", "error", "client peer space", "Handling a client's connection failed; this connection was closed.", REPORT),
    Event("mqtt.leave.began", "info", "clients", "The gateway was ordered to leave: it accepts no further connections, and closes those that are open a few at a time.", NOTHING),
    Event("mqtt.leave.ended", "info", "moved left seconds", "The gateway has handed its clients on: `moved` were closed one by one, `left` are closed at once.", NOTHING),
    Event("mqtt.message.not-sent", "debug", "topic reason space", "A message cannot be expressed in the client's version of MQTT, or exceeds its maximum packet size; it was dropped for this client.", NOTHING),
    Event("mqtt.relay.failed", "info", "peer reason", "The router did not take a client of AMQP over WebSocket; the client was answered 503.", "`enmasse status` shows whether the router is ready; Qpid Dispatch takes none."),
    Event("mqtt.session.open-failed", "error", "client space", "A session could not be opened because of an unexpected error.", REPORT),
    Event("mqtt.sweep.failed", "error", "", "A check of keep-alive and other times failed.", REPORT),
    Event("mqtt.websocket.unmasked", "info", "", "A WebSocket client sent a frame that is not masked; its connection was closed.", "Repair the client (RFC 6455, 5.1)."),
    Event("mqtt.websocket.write-failed", "debug", "error", "A WebSocket closed while data was written.", NOTHING),
    Event("process.failed", "error", "", "The process ended because of an unexpected error.", REPORT),
    Event("process.listener.failed", "error", "reason", "A listener that is wanted since the options of `enmasse up` were read again cannot be opened.", "Correct what `reason` states, then `enmasse reload`."),
    Event("process.settings.rejected", "error", "reason", "The file with the settings has changed and cannot be used: the process keeps those that it has.", "See `reason`; the file is written by `enmasse up`."),
    Event("process.stop.timed-out", "warning", "seconds", "The process did not stop within `seconds` and was cancelled.", "Report it if it happens again."),
    Event("process.task.failed", "error", "task", "A background task failed with an unexpected error.", REPORT),
    Event("reconcile.changes.refused", "warning", "reason keys", "This many changes were refused; they are tried again later.", "See `reason`."),
    Event("reconcile.round.failed", "warning", "reason seconds", "An operation failed; after `seconds` everything is read and compared again.", "See `reason` if it continues."),
    Event("router.clients.spread", "info", "clients surplus routers", "Another router came: of the `clients` here `surplus` are closed, a few at a time, so that they connect to any router.", NOTHING),
    Event("router.leave.began", "info", "connections", "The router was ordered to leave: it accepts no further clients, and closes the connections of those that it has a few at a time.", NOTHING),
    Event("router.leave.ended", "info", "moved left seconds", "The router has handed its clients on: `moved` connections were closed one by one, `left` are closed at once.", NOTHING),
    Event("router.management-request.failed", "error", "operation type", "A management request failed with an unexpected error.", REPORT),
    Event("router.management-request.unreadable", "info", "reason", "A management request cannot be decoded; it was rejected.", "Correct the client."),
    Event("router.neighbour.duplicate-id", "error", "router text", "Another router has the id of this one, or of a neighbour; its connection is refused.", "Give each router an id of its own."),
    Event("router.neighbour.found", "info", "router text", "Another router is a neighbour in the mesh.", NOTHING),
    Event("router.neighbour.left", "info", "router text", "A router is no neighbour any longer: the connection was ended in order, as when a router leaves.", NOTHING),
    Event("router.neighbour.lost", "warning", "router text", "A router is no neighbour any longer: its connection was lost, or was closed because the router was silent for 1.5 to 3 s.", "Look at the router and the network between them."),
    Event("router.neighbour.refused", "warning", "router text", "A router cannot be a neighbour; its connection is closed.", "See `text`."),
    Event("router.neighbour.restarted", "info", "router text", "Another router of the mesh has restarted.", NOTHING),
    Event("router.neighbour.unreadable", "warning", "router text", "A control message of another router is malformed, or of a newer version; it is ignored. Noted once.", "Look at the version of the router."),
    Event("router.reply.dropped", "debug", "reply_to", "A management reply was dropped because its address has no receiver.", NOTHING),
    Event("spark.progress.failed", "warning", "file reason", "A line of a pipeline's progress cannot be written; the query continues.", "Check the disk of the work folder."),
    Event("spark.readings.bad", "warning", "batch count reason", "Messages of a batch are no readings, and are in no result. `reason`: of one of them.", "Correct the devices; `deadLetterAddress` in `[readings]` of the pipeline keeps such messages, each with its reason."),
    Event("spark.readings.late", "warning", "batch count", "Readings of a batch are left out of the windows: the watermark has passed the end of theirs.", "Raise `watermark` of the pipeline if devices report later than it allows."),
    Event("spark.receiver.line-ignored", "warning", "source line", "A receiver process has written a line that is not of its protocol, which a library may do.", "Nothing. Report it if it happens often."),
    Event("spark.source.ids-missing", "warning", "source reason", "Messages come without a message-id: a copy that is redelivered cannot be recognised, and is a second row. Noted once by each receiver.", "Have their sender give each message a message-id; an MQTT client publishes with QoS 2."),
    Event("spark.source.interrupted", "warning", "source reason", "Nothing is received from the address; the query tries again.", "Check the server and the address."),
    Event("spark.source.resumed", "warning", "source", "Messages are received from the address again.", NOTHING),
    Event("spark.spool.filled", "warning", "source bytes", "The spool exceeds `spoolLimit`; nothing is received until Spark commits.", "Check whether the query makes progress; raise `spoolLimit`."),
    Event("spark.spool.freed", "warning", "source", "The spool has room again; messages are received.", NOTHING),
    Event("stomp-gateway.client.stalled", "debug", "peer buffered", "A client does not read; its connection was closed. `buffered`: bytes that it left unread.", "Look at the client."),
    Event("stomp-gateway.connection.failed", "error", "peer", "Handling a client's connection failed; this connection was closed.", REPORT),
    Event("store.backup.completed", "info", "folder bytes", "A backup of the store was made.", NOTHING),
    Event("store.backup.failed", "error", "folder reason", "A backup of the store could not be made.", "Check room and permissions of the folder."),
    Event("store.connection.failed", "error", "reason", "The store cannot be used; writes wait or fail.", "Check the disk or the Redis server."),
    Event("store.connection.opened", "info", "store", "The store can be used.", NOTHING),
    Event("store.engine.failed", "error", "store", "The store failed with an unexpected error.", REPORT),
    Event("subserv.copy.failed", "error", "broker topic reason space", "A retained message cannot be copied to a new subscriber; the others are.", "Find the publisher of the topic."),
    Event("subserv.feed.restarted", "error", "broker", "Reading retained messages from a broker failed and begins again.", REPORT),
    Event("subserv.gateway.attached", "info", "gateway sessions", "A gateway attached with its sessions.", NOTHING),
    Event("subserv.gateway.detached", "info", "gateway", "A gateway detached; its clients count as disconnected after a grace time.", NOTHING),
    Event("subserv.gateway.not-released", "error", "gateway reason", "The clients of a lost gateway cannot be marked as disconnected; it is tried again.", "Check the store."),
    Event("subserv.listing.failed", "warning", "broker reason", "The queues of a broker cannot be listed; the listing shows the other brokers.", "Check the broker."),
    Event("subserv.message.not-retained", "warning", "broker topic reason space", "A message is not retained.", "See `reason`."),
    Event("subserv.packets.refused", "error", "", "Changes of packet ids failed with an unexpected error; their callers are refused.", REPORT),
    Event("subserv.preparation.postponed", "warning", "broker reason", "Subscriptions cannot be bound on a broker to which a topic is about to move; its messages go to the old broker until they are.", "See `reason`."),
    Event("subserv.queue.resumption-postponed", "warning", "broker id reason space", "A queue that was paused cannot be resumed now; it is resumed later.", NOTHING),
    Event("subserv.request.failed", "error", "address subject", "A request failed with an unexpected error; it was refused.", REPORT),
    Event("subserv.retained.not-processed", "error", "broker", "A message could not be retained because of an unexpected error.", REPORT),
    Event("subserv.retained.not-stored", "error", "broker reason", "Retained messages cannot be stored; it is tried again.", "Check the store."),
    Event("subserv.return.dropped", "warning", "address count space", "Messages that a session had not confirmed were dropped because the queue address they came from no longer exists.", NOTHING),
    Event("subserv.return.failed", "info", "address count reason space", "Messages that a session had not confirmed could not be returned to their queue address; it is tried again.", NOTHING),
    Event("subserv.return.missing", "error", "address count space", "Messages that a session had not confirmed are not in the store, so they cannot be returned to their queue address.", "Check the store for damage, or restore its backup (docs/operations.md, \"Backup\")."),
    Event("subserv.router.attach-failed", "debug", "reason", "The service cannot attach to the router; it is tried again.", "Check the router if it continues."),
    Event("subserv.space.removed", "info", "retained sessions space subscriptions", "An address space was removed: what it had at the subscription service is ended.", NOTHING),
    Event("subserv.store.refused", "error", "", "The store failed with an unexpected error; requests are refused.", REPORT),
    Event("subserv.subscription.end-postponed", "warning", "reason space", "A subscription cannot be removed from all brokers now; it is removed later.", NOTHING),
    Event("subserv.subscriptions.forbidden", "info", "client filters space", "Stored subscriptions were ended, because their user is gone or may no longer receive this.", NOTHING),
    Event("subserv.unknown-queues.found", "error", "broker count queues", "A broker has queues of sessions that the store does not know; they are kept.", "Restore the store's backup, or delete the queues (docs/operations.md, \"Backup\")."),
    Event("subserv.upkeep.failed", "error", "task", "A periodic task failed with an unexpected error; it is tried again.", REPORT),
    Event("subserv.upkeep.postponed", "warning", "task reason", "A periodic task needs the store, which cannot be used; it is tried again.", "Check the store."),
    Event("subserv.write.refused", "info", "broker id subject reason space", "A request was refused because the store cannot be used.", "Check the store."),
    Event("suite.certificate.issued", "info", "file", "A certificate of `--tls auto` was made or renewed.", NOTHING),
    Event("suite.configuration.applied", "info", "file sha256", "A configuration file is in force with this content.", NOTHING),
    Event("suite.fork.failed", "warning", "module error", "A service could not be forked from the process that has imported the services, and is executed.", "Nothing unless it repeats: starts are slower and take more memory then."),
    Event("suite.notice.printed", "warning", "line", "A line for the user, as on the terminal.", "See `line`."),
    Event("suite.options.rejected", "warning", "reason", "The options of `enmasse up` were to be read again (SIGHUP, `enmasse reload`), and something is wrong in them: nothing was changed.", "Correct what `reason` states."),
    Event("suite.options.reloaded", "info", "changed later waiting", "The options of `enmasse up` were read again. `changed` are in force, `later` need a restart; `waiting`: what processes have not done in time.", "Nothing, or see `waiting`."),
    Event("suite.request.refused", "warning", "method path", "A request to the HTTP endpoint of the suite came without the operator's secret.", "If it was yours: send the secret of `run/operator.secret` in the data folder (docs/identity.md)."),
    Event("suite.scale.decided", "info", "kind before count reason busy connections", "The load of the processes of a kind has one come or go (`--routers 1..4`, `enmasse scale`). `busy`: the sum of the parts of their time for which their event loops are on a processor.", NOTHING),
    Event("suite.start.begun", "info", "version pid config data ports", "`enmasse up` begins to start the suite.", NOTHING),
    Event("suite.start.completed", "info", "", "All components and addresses are ready.", NOTHING),
    Event("suite.start.delayed", "warning", "waiting_for more", "The start takes longer than expected; `waiting_for` names the components and addresses that are not ready.", "Read the logs of these components."),
    Event("suite.stop.requested", "info", "now", "A signal to stop was received; with `now` it is the second one, and processes are killed.", NOTHING),
    Event("tls.certificate.rejected", "error", "cert reason", "A changed certificate, key or authority of clients cannot be used; the previous ones stay in use.", "Correct the files."),
    Event("tls.certificate.renewed", "info", "cert", "A changed certificate, key or authority of clients is in use.", NOTHING),
    Event("tls.certificate.troubled", "warning", "reason", "The certificate of the listeners expires within 14 days, has expired, or a changed file of it cannot be used; a line a day while it expires.", "Put a new certificate there: it is read without a restart."),
    Event("traces.export.failed", "warning", "spans reason", "The collector did not take spans of traced messages: they are lost. The messages are not. Logged once, until an export succeeds; the metric `enmasse_trace_spans_total` counts.", "Check the collector, and OTEL_EXPORTER_OTLP_ENDPOINT."),
    Event("traces.export.resumed", "info", "", "The collector takes spans again.", NOTHING),
)  # fmt: skip

CATALOGUE = {event.id: event for event in EVENTS}

INTRODUCTION = """# Log events

Each line of a log is a JSON object. `event` is one of the ids below; `level`, `timestamp` and `service` are in every
line, and fields such as `peer`, `broker`, `router`, `component`, `lease` or `part` name what the logger is about.
`exception` has a traceback. Events `audit.…` are logged at any level and have `"audit": true`, `who` (a user or a
process, null if it is not known), `from` (host and port, or a file), `what` and `outcome`; `count` is the number of
equal events for which a line stands: after the first one there is a line a minute. [operations.md](operations.md) says
where they are. Lines without a dotted id come from libraries and have the field `logger`.

`space` is the [address space](spaces.md) of what a line is about, in which the names of the line are those that its
clients use; a line about the default space has no such field. `who` of a user of another space than the default one is
`USER@SPACE`: a user of the default space may act in each.

This page is made from `enmasse/logs/events.py` by `make event-docs`.
"""


def page() -> str:
    """Return the text of docs/events.md."""
    parts = [INTRODUCTION]
    for area, title in AREAS.items():
        parts.append(f"\n## {title}\n\n| event | level | fields | meaning | what to do |\n|---|---|---|---|---|\n")
        for event in EVENTS:
            if event.id.split(".")[0] == area:
                fields = ", ".join(f"`{name}`" for name in event.fields.split())
                parts.append(f"| `{event.id}` | {event.level} | {fields} | {event.meaning} | {event.action} |\n")
    return "".join(parts)


def main() -> None:
    """Write the page to stdout."""
    import sys

    sys.stdout.write(page())


if __name__ == "__main__":
    main()
