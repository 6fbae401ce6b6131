"""`python -m services.broker --config FILE.json`: see README.md."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.broker.app import BrokerSettings, run


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(BrokerSettings, run, use_uvloop=True)


if __name__ == "__main__":
    main()
