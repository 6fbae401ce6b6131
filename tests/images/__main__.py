"""Builds the images out of this machine's own files: `python -m tests.images [TARGET...]`."""

from __future__ import annotations

import sys

from tests.images.build import build

if __name__ == "__main__":
    build(*sys.argv[1:])
