"""`python -m services.broker --config FILE.json`: see README.md."""

from enmasse import startup

if __name__ == "__main__":
    startup.begin()
    from enmasse import process
    from services.broker.app import BrokerSettings, run

    process.start(BrokerSettings, run, use_uvloop=True)
