"""`python -m services.mqtt_lwt --config FILE.json`."""

from enmasse import startup

if __name__ == "__main__":
    startup.begin()
    from enmasse import process
    from services.mqtt_lwt.service import LastWillSettings, serve

    process.start(LastWillSettings, serve)
