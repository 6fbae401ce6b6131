"""HTTP gateway: clients of HTTP/1.1 and HTTP/2 send messages to addresses, and take them.

wire    connections of clients: bytes to requests and back
api     requests: rights, meaning on AMQP
http_door, app
        listeners and both halves joined; the process
"""
