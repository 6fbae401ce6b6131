"""The way of a gateway to the router and the authentication service, whatever protocol its clients speak.

    uplink                      a connection to the router that keeps itself connected
    message_outcomes            how a message ends
    message_routes              the address and the link that it goes to
    lanes, publishing           messages from clients: links, credit, outcomes
    password_link               passwords that the authentication service checks
    offering                    the way to a gateway's live state through Qpid Dispatch

Knows no service and no protocol of clients.
"""
