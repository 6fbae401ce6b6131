"""Engines: the products that can run as router or broker. Everything that differs between them is in this room.

An engine is one object (`engine.RouterEngine`, `engine.BrokerEngine`): how its program is found and started, how its
health is probed, its settings, its pod, what it lacks. `choices` lists the objects; a further engine is a module here
and its line there. `messages`: the management of messages, by product. `program`: how the supervisor runs a process.
`mark`: which engine's messages a folder has.
Knows neither supervisor nor services nor the client of Kubernetes; what is heavy is imported when it is needed.
"""

EMBEDDED = "embedded"
"""Name of our own router and broker."""
