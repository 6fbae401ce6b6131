"""`python -m services.storage_controller --config FILE`."""

from enmasse import process
from services.storage_controller.controller import Settings, serve

if __name__ == "__main__":
    process.start(Settings, serve)
