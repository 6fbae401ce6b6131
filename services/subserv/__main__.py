"""`python -m services.subserv --config FILE.json`."""

from enmasse import startup

startup.begin()

from enmasse import process
from services.subserv.app import SubservSettings, serve


def main() -> None:
    """Run the service that the command line names, to its end."""
    process.start(SubservSettings, serve)


if __name__ == "__main__":
    main()
