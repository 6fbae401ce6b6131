"""MQTT 3.1.1 and MQTT 5.0 without sockets and without a clock: bytes to packets and back, both ways, both ends.

`packets` are plain values; `reader` makes them from bytes, however these arrive; `encode` makes bytes from them;
`topics` knows topic names and filters; `reasons` the reason codes; `errors` the two ways in which a peer's bytes can be
wrong. Permissions, sessions and effects of packets are the task of its callers.
May import nothing of EnMasse.
"""
