"""`python -m services.mqtt_gateway --config FILE.json`."""

from enmasse import startup

if __name__ == "__main__":
    startup.begin()
    from enmasse import process
    from services.mqtt_gateway.app import serve
    from services.mqtt_gateway.settings import GatewaySettings

    process.start(GatewaySettings, serve, use_uvloop=True)
