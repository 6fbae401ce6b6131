"""What the embedded broker keeps on disk: durable messages and definitions (`store`), and payloads that may die with
the process (`paging`). Imports nothing of the broker; its core knows the store by protocols (core/persistence.py).
`files` is all that anything here knows of the disk."""
