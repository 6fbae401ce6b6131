"""`python -m services.router --config FILE.json`"""

from enmasse import process
from services.router.app import serve
from services.router.config import Settings

if __name__ == "__main__":
    process.start(Settings, serve, use_uvloop=True)
