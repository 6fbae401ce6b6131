"""`python -m services.configserv --config FILE.json`."""

from enmasse import startup

startup.begin()

from enmasse import process
from services.configserv.app import serve
from services.configserv.service import ConfigservSettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    process.start(ConfigservSettings, serve, guarded=True)


if __name__ == "__main__":
    main()
