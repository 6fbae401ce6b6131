"""`python -m services.router --config FILE.json`."""

from enmasse import startup

startup.begin()

from enmasse import process
from services.router.app import serve
from services.router.config import RouterSettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    process.start(RouterSettings, serve, use_uvloop=True)


if __name__ == "__main__":
    main()
