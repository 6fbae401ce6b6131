"""The embedded router: behaves as Qpid Dispatch does, as far as clients, tools and the router agent depend on it.

Three floors, each with its own `__init__`: `routing` is the domain, `network` its ports, `management` stands on both.
`app` joins them; `config` reads the file through the tables of management.
"""

PRODUCT = "qpid-dispatch-router"
SIMULATES = "1.19.0"
"""The version of Qpid Dispatch whose management and forwarding rules are followed."""
