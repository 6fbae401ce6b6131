"""`python -m services.storage_controller --config FILE.json`."""

from enmasse.process import startup

startup.begin()

from enmasse.process import runner
from services.storage_controller.app import serve
from services.storage_controller.controller import ControllerSettings


def main() -> None:
    """Run the service that the command line names, to its end."""
    runner.start(ControllerSettings, serve, guarded=True)


if __name__ == "__main__":
    main()
