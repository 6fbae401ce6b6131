"""Compiles Python's standard library into a folder: `python3 bytecode.py FOLDER`.

FOLDER gets the files of `__pycache__` at their own paths, to be copied over the root of an image. Images of Python come
without them, and containers may not write them: each start of a service would compile all that it imports. The files
name the hash of their source, so in a base with another release of Python they have no effect.
"""

import sys
import sysconfig
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode, compile

LEFT_OUT = {
    "test",
    "tests",
    "site-packages",
    "dist-packages",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
}
"""Folders with modules that no service imports."""

folder, library = sys.argv[1], Path(sysconfig.get_path("stdlib"))
for source in library.rglob("*.py"):
    if not LEFT_OUT.intersection(source.relative_to(library).parts):
        compile(
            str(source),
            folder + cache_from_source(str(source)),
            doraise=True,
            invalidation_mode=PycInvalidationMode.CHECKED_HASH,
        )
