"""`python -m services.configserv --config FILE.json`."""

from enmasse import startup

if __name__ == "__main__":
    startup.begin()
    from enmasse import process
    from services.configserv.app import serve
    from services.configserv.service import ConfigservSettings

    process.start(ConfigservSettings, serve, guarded=True)
