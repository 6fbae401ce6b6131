"""A module that is imported with the first client that needs it."""

from __future__ import annotations

import os

IMPORTED_BY = os.getpid()
