"""`python -m services.router --config FILE.json`."""

from enmasse import startup

if __name__ == "__main__":
    startup.begin()
    from enmasse import process
    from services.router.app import serve
    from services.router.config import RouterSettings

    process.start(RouterSettings, serve, use_uvloop=True)
