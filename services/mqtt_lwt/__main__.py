"""`python -m services.mqtt_lwt --config FILE.json`."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.mqtt_lwt.service import LastWillSettings, serve


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(LastWillSettings, serve)


if __name__ == "__main__":
    main()
