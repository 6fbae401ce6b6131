"""The way of a gateway to the router and the authentication service, whatever protocol its clients speak.

    uplink         a connection to the router that keeps itself connected
    password_link  passwords that the authentication service checks
    offering       the way to a gateway's live state through Qpid Dispatch

Knows no service, no protocol of clients, and no more of a client than its name and address space.
"""
