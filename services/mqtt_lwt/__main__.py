"""`python -m services.mqtt_lwt --config FILE.json`."""

from enmasse import startup

startup.begin()

from enmasse import process
from services.mqtt_lwt.service import LastWillSettings, serve


def main() -> None:
    """Run the service that the command line names, to its end."""
    process.start(LastWillSettings, serve)


if __name__ == "__main__":
    main()
