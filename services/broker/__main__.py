"""`python -m services.broker --config FILE.json`: see README.md."""

from enmasse import startup

startup.begin()

from enmasse import process
from services.broker.app import BrokerSettings, run


def main() -> None:
    """Run the service that the command line names, to its end."""
    process.start(BrokerSettings, run, use_uvloop=True)


if __name__ == "__main__":
    main()
