"""`python -m services.ragent --config FILE.json`."""

from enmasse import startup

startup.begin()

from enmasse import process
from services.ragent.agent import RouterAgentSettings, serve


def main() -> None:
    """Run the service that the command line names, to its end."""
    process.start(RouterAgentSettings, serve)


if __name__ == "__main__":
    main()
