"""The router's management node: entity types, their tables, and the agent that answers requests to `$management`."""
