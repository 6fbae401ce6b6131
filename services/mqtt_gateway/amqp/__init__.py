"""The gateway's way to the router, to the subscription service and to the last-will service.

    amqp_values, mapping        an MQTT PUBLISH as an AMQP message, and back; pure
    outcome_reasons             outcomes of messages as reason codes
    filters, sources, exchanges messages to clients: what a session subscribes to, the links it receives from, QoS 2
    repeats                     messages to clients that are redelivered because their link was lost
    topic_access                permissions of clients for topics
    session_service, wills      the conversations with the subscription service and the last-will service
    gateway_state               state that all sessions share
    metered_session             a session in an address space with limits
    session, backend            `interfaces.Session` and `interfaces.Backend`, which put these together

What every gateway needs of this is in enmasse/bridge. Imports enmasse, `interfaces`, and nothing else of the gateway.
"""
