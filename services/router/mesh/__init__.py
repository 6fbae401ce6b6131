"""Network of routers by the inter-router protocol of Qpid Dispatch 1.19: the other routers, the paths to them, and
the addresses with receivers there. Free of sockets, clocks and connections; `mesh_engine` puts the parts together.
"""
