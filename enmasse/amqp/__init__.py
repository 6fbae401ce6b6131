"""AMQP 1.0 without sockets and without a clock: codec, messages, and the engine of connections, sessions and links.

Bytes in by `Connection.receive`, out by `take_output`, time by `tick`; callbacks are a Handler's. May import nothing of
the project but itself; `enmasse.aio` puts it on asyncio. docs/decisions/0013 has how it is cut, DESIGN.md how
the parts work together.

    codec                                                      values and frames
    messages, termini, sole_connection                         what messages, attaches and opens hold
    output, outgoing, incoming, held_bytes, linktable, idle    one state each: what leaves, both windows of a session,
                                                               unfinished deliveries, which links, deadlines
    endpoint, sender, receiver, delivery, session              links and sessions
    sasl, reader, connection, handler                          from the first byte to the callback
"""
