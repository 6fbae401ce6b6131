"""The way of a message into queues: room, duplicates, the commit before the answer."""
