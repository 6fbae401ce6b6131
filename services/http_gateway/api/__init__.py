"""Requests of clients (docs/http.md).

Rights, meaning on AMQP, and answers:

    header_mapping              headers as fields of a message, and back; the table of the documentation; pure
    request_paths               addresses and resources of paths; pure
    http_problems               errors of requests as answers
    http_space                  state of an address space, with the replies to its requests
    http_clients                logins, rights, limits and rates of clients
    posting                     messages from clients
    locked_deliveries           messages that clients have and have not settled
    receiving                   messages to clients, and their outcomes
    event_stream                the link of a stream of events: what waits, what is settled
    event_requests              streams of events
    reply_box                   where replies to requests come in
    requesting                  requests with a reply
    http_openapi                the description of all of this
    requests_of_clients         from a request to what answers it
"""
