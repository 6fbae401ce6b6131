"""The parts of a console, with which the operations of the API work."""

from __future__ import annotations

from dataclasses import dataclass

from services.console.configuration import Configuration
from services.console.gate import Gate
from services.console.jobs import Jobs
from services.console.listing import Lists
from services.console.live import Live
from services.console.login import Authserv
from services.console.subscribers import Subscribers
from services.console.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a running console. `supervisor` None: in a cluster."""

    configuration: Configuration
    gate: Gate
    authserv: Authserv
    lists: Lists
    live: Live
    subscribers: Subscribers
    supervisor: Supervisor | None
    jobs: Jobs
