"""The router agent: configures the routers that dial it, and reports how each address is on them.

`entities` (pure) and `desired` say what a router is to have; `table`, `pages` and `sweep` what it has; `management`
asks it; `router` brings them together. Imports enmasse.control, enmasse.reconcile, enmasse.model; no other service.
"""
