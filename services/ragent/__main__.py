"""`python -m services.ragent --config FILE.json`."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.ragent.agent import RouterAgentSettings, serve


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(RouterAgentSettings, serve)


if __name__ == "__main__":
    main()
