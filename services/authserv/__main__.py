"""`python -m services.authserv --config FILE.json`: see README.md."""

from enmasse import startup

startup.begin()

from enmasse import process
from services.authserv.app import AuthservSettings, serve


def main() -> None:
    """Run the service that the command line names, to its end."""
    process.start(AuthservSettings, serve, use_uvloop=True)


if __name__ == "__main__":
    main()
