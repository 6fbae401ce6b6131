"""The console: REST API and page of the suite (README.md).

`__main__` and `app` are imported at the start; `web` and what it needs, aiohttp among it, with the first connection.
"""
