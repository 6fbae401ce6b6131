"""`python -m services.subserv --config FILE.json`."""

from enmasse import startup

if __name__ == "__main__":
    startup.begin()
    from enmasse import process
    from services.subserv.app import SubservSettings, serve

    process.start(SubservSettings, serve)
