"""`python -m services.ragent --config FILE.json`."""

from enmasse import startup

if __name__ == "__main__":
    startup.begin()
    from enmasse import process
    from services.ragent.agent import RouterAgentSettings, serve

    process.start(RouterAgentSettings, serve)
