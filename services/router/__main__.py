"""`python -m services.router --config FILE.json`."""

from enmasse import startup

if __name__ == "__main__":
    startup.begin()
    from enmasse import process
    from services.router.app import serve
    from services.router.config import Settings

    process.start(Settings, serve, use_uvloop=True)
