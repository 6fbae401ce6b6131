"""`python -m services.configserv --config FILE.json`."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.configserv.app import serve
from services.configserv.service import ConfigservSettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(ConfigservSettings, serve, guarded=True)


if __name__ == "__main__":
    main()
