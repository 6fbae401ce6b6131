"""`python -m services.coap_gateway --config FILE.json`."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.coap_gateway.app import serve
from services.coap_gateway.settings import CoapGatewaySettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(CoapGatewaySettings, serve, use_uvloop=True)


if __name__ == "__main__":
    main()
