"""The parts of a console, with which the operations of the API work."""

from __future__ import annotations

from dataclasses import dataclass

from services.console.door.authserv_client import Authserv
from services.console.door.gate import Gate
from services.console.door.under_way import Shares
from services.console.following.configuration import Configuration
from services.console.following.followers import Live
from services.console.following.subscribers import Subscribers
from services.console.following.supervisor import Supervisor
from services.console.jobs.jobs import Jobs
from services.console.rest.listing import Lists


@dataclass(frozen=True, slots=True)
class Components:
    """The parts of a running console. `supervisor` None: in a cluster."""

    configuration: Configuration
    gate: Gate
    authserv: Authserv
    lists: Lists
    live: Live
    subscribers: Subscribers
    supervisor: Supervisor | None
    jobs: Jobs
    browses: Shares
