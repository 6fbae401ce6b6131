"""`python -m services.mqtt_gateway --config FILE.json`."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.mqtt_gateway.app import serve
from services.mqtt_gateway.settings import MqttGatewaySettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(MqttGatewaySettings, serve, use_uvloop=True)


if __name__ == "__main__":
    main()
