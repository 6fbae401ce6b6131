"""`python -m services.subserv --config FILE.json`."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.subserv.app import SubservSettings, serve


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(SubservSettings, serve)


if __name__ == "__main__":
    main()
