"""`python -m services.console --config FILE.json`."""

from enmasse import startup

startup.begin()

from enmasse import process
from services.console.app import serve
from services.console.settings import ConsoleSettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    process.start(ConsoleSettings, serve)


if __name__ == "__main__":
    main()
