"""Packages of the wheel. Everything else is in pyproject.toml.

`services`, `spark` and `charts` are installed inside the package `enmasse`, in the folder INSIDE, so that they cannot
collide with packages of the user (docs/decisions/0030-what-the-wheel-installs.md). An editable install is a path to the
checkout; any other package_dir would make it a finder, which costs every start 12 ms.
"""

import sys

from setuptools import find_packages, setup

INSIDE = "enmasse._installed"
DATA = {
    "charts": ["enmasse/**", "enmasse/.helmignore"],
    "enmasse.spark": ["log4j2.properties"],
    "services.console": ["page/**"],
}

packages = find_packages(include=["enmasse*", "services*", "spark", "charts"])
moved = {
    name: f"{INSIDE}.{name}"
    for name in packages
    if name.partition(".")[0] in ("services", "spark", "charts") and "editable_wheel" not in sys.argv
}
setup(
    packages=[moved.get(name, name) for name in packages],
    package_dir={"": ".", **{new: name.replace(".", "/") for name, new in moved.items()}},
    package_data={moved.get(name, name): data for name, data in DATA.items()},
)
