"""`python -m services.router --config FILE.json`."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.router.app import serve
from services.router.config import RouterSettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(RouterSettings, serve, use_uvloop=True)


if __name__ == "__main__":
    main()
