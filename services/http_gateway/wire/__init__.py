"""Connections of HTTP clients: sockets, HTTP/1.1 by h11, HTTP/2 by h2, and what each of them may cost.

http_exchange               one request and its answer, as the API sees them
http1, http2                exchanges of a connection; sans-IO parsers of libraries below them
frame_budget                how much of what costs a peer little HTTP/2 connections may send
peer_connection             the socket, deadlines, which of the two versions it is
"""
