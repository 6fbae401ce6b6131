#!/usr/bin/env python3
"""The command `enmasse` of the image of the whole suite.

Unless `up.json` or options say where, `enmasse up` listens on all addresses there, with TLS. If there are no users yet,
it makes one with all permissions: nothing is open to clients without a user.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from enmasse.cli import main
from enmasse.cli.common import say

USER = "admin"
CONFIG = Path(os.environ["XDG_CONFIG_HOME"], "enmasse")
PASSWORD = CONFIG / f"{USER}.password"


def is_first_start() -> bool:
    """Return True if nothing says yet which clients may connect: no file of users or issuers, no option."""
    if os.environ.get("ENMASSE_ALLOW_ANONYMOUS") == "1" or {"--allow-anonymous", "--help", "-h"} & set(sys.argv):
        return False
    return not any((CONFIG / name).exists() for name in ("users.json", "issuers.json"))


def make_user() -> None:
    """Make the user whole or not at all: `users.json` is moved to its place last."""
    with tempfile.TemporaryDirectory(dir=CONFIG) as folder:
        for command in (("add", USER, "--output", f"{folder}/password"), ("allow", USER, "view,send,recv,manage", "#")):
            line = (sys.executable, __file__, "user", *command, "--config", folder)
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
        Path(folder, "password").replace(PASSWORD)
        Path(folder, "users.json").replace(CONFIG / "users.json")
    say(f"made the user {USER}; the password is in {PASSWORD}")


def set_defaults() -> None:
    """Set the options that are stated nowhere else."""
    if (CONFIG / "up.json").exists():
        return
    os.environ.setdefault("ENMASSE_LISTEN", "*")
    if "ENMASSE_TLS_CERT" not in os.environ and not any(word.startswith("--tls") for word in sys.argv):
        os.environ.setdefault("ENMASSE_TLS", "auto")


if __name__ == "__main__":
    if sys.argv[1:2] == ["up"]:
        try:
            if is_first_start():
                make_user()
        except OSError as error:
            sys.exit(f"{error.filename or CONFIG}: {error.strerror}. User {os.getuid()} must be able to write there.")
        set_defaults()
    main()
