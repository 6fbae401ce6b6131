"""The router agent: configures the routers that dial it, and reports the state of each address on them.

`entities` (pure) and `desired` compute a router's desired entities; `table`, `pages` and `sweep` hold its actual ones;
`management` sends the requests; `router` reconciles the two. Imports enmasse.control, enmasse.reconcile, enmasse.model;
no other service.
"""
