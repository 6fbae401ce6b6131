"""`python -m services.storage_controller --config FILE.json`."""

from enmasse import startup

if __name__ == "__main__":
    startup.begin()
    from enmasse import process
    from services.storage_controller.controller import ControllerSettings, serve

    process.start(ControllerSettings, serve, guarded=True)
