"""`python -m services.http_gateway --config FILE.json`."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.http_gateway.app import serve
from services.http_gateway.settings import HttpGatewaySettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(HttpGatewaySettings, serve, use_uvloop=True)


if __name__ == "__main__":
    main()
