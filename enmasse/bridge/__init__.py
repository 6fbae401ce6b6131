"""The way of a gateway to the router and the authentication service, whatever protocol its clients speak.

    uplink                      a connection to the router that keeps itself connected
    message_outcomes            how a message ends
    message_routes              the address and the link that it goes to
    message_fields              its fields as texts, and its bytes
    lanes, publishing           messages from clients: links, credit, outcomes
    space_lanes                 addresses of an address space, and the lanes to them
    client_access, client_rates users and rights of clients; rates of their address spaces
    client_logins, authentication who a client is; logins at the authentication service
    client_refused              why a client is not served
    bridge                      all of this, with the feeds and a connection for each address space
    gateway_settings            settings that every gateway has
    gateway_ports               its ports: settings, sockets, TLS
    password_link               passwords that the authentication service checks
    offering                    the way to a gateway's live state through Qpid Dispatch

Knows no service and no protocol of clients.
"""
