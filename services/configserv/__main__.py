"""`python -m services.configserv --config FILE.json`."""

from enmasse import process
from services.configserv.service import Settings, serve

if __name__ == "__main__":
    process.start(Settings, serve)
