"""Disk storage of the embedded broker: durable messages and definitions (`store`), and payloads that are kept only as
long as the process (`paging`). Imports nothing of the broker; its core knows the store by protocols
(core/persistence.py). All disk access goes through
`journal/file_operations`."""
