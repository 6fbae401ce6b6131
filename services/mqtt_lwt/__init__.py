"""The last-will service: keeps the wills of clients, and publishes those of clients that are lost (README.md).

    wills          the wills, the link that holds each, when each is due; knows no AMQP, no store and no clock
    records        these wills in a store: what must be durable before anything is answered
    requests       decodes the messages to `$lwt`, and builds the message that will be published
    links          the links to `$lwt`
    will_publisher sends due wills until they are accepted
    service        settings, the conversation with the router, health and metrics

Imports enmasse.control (python-qpid-proton), enmasse.stores and the message codec of enmasse.amqp.
"""
