"""`python -m services.storage_controller --config FILE.json`."""

from enmasse import startup

startup.begin()

from enmasse import process
from services.storage_controller.app import serve
from services.storage_controller.controller import ControllerSettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    process.start(ControllerSettings, serve, guarded=True)


if __name__ == "__main__":
    main()
