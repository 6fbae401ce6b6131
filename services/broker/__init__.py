"""The embedded broker. From the ground up: `core` (messages, queues, addresses; sans-IO) beside `storage` (the disk),
`management` (operations by messages), the connections and their links, `server` (sockets and timers), `app` (the
process). Imports enmasse and nothing of other services; pyproject.toml holds the floors."""
