"""`python -m services.console --config FILE.json`."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.console.app import serve
from services.console.settings import ConsoleSettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(ConsoleSettings, serve)


if __name__ == "__main__":
    main()
