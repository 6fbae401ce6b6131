"""`python -m services.storage_controller --config FILE.json`."""

from enmasse import startup

if __name__ == "__main__":
    startup.begin()
    from enmasse import process
    from services.storage_controller.app import serve
    from services.storage_controller.controller import ControllerSettings

    process.start(ControllerSettings, serve, guarded=True)
