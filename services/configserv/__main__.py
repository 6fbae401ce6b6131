"""`python -m services.configserv --config FILE.json`."""

from enmasse import startup

if __name__ == "__main__":
    startup.begin()
    from enmasse import process
    from services.configserv.service import ConfigservSettings, serve

    process.start(ConfigservSettings, serve)
