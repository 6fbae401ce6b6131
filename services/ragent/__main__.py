"""`python -m services.ragent --config FILE`."""

from enmasse import process
from services.ragent.agent import Settings, serve

if __name__ == "__main__":
    process.start(Settings, serve)
