"""`python -m services.authserv --config FILE.json`: see README.md."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.authserv.app import AuthservSettings, serve


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(AuthservSettings, serve, use_uvloop=True)


if __name__ == "__main__":
    main()
