"""Common parts of the tests of all rooms: waiting for conditions, running asyncio tests, starting programs.

Suites, ports and the poll that demo and soak share are in enmasse.testing.
"""
