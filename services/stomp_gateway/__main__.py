"""`python -m services.stomp_gateway --config FILE.json`."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.stomp_gateway.app import serve
from services.stomp_gateway.settings import StompGatewaySettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(StompGatewaySettings, serve, use_uvloop=True)


if __name__ == "__main__":
    main()
