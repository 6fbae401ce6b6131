"""subserv with room for 8 of each thing: `python -m tests.subserv.narrow --config FILE`."""

from enmasse.process import runner
from services.subserv import amqp
from services.subserv.app import SubservSettings, serve
from services.subserv.sessions import clients

clients.MAX_SESSIONS = clients.MAX_SUBSCRIPTIONS_ALL = amqp.MAX_SUBSCRIPTIONS = 8


if __name__ == "__main__":
    runner.start(SubservSettings, serve)
