"""`python -m services.mqtt_gateway --config FILE.json`."""

from enmasse import startup

startup.begin()

from enmasse import process
from services.mqtt_gateway.app import serve
from services.mqtt_gateway.settings import GatewaySettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    process.start(GatewaySettings, serve, use_uvloop=True)


if __name__ == "__main__":
    main()
