"""STOMP gateway: clients of STOMP 1.0, 1.1 and 1.2 send messages to addresses, and receive from them.

stomp_destinations      destinations as addresses; the table of the documentation; pure
stomp_mapping           headers as fields of a message, and back; the table of the documentation; pure
stomp_errors            what ends a connection
stomp_subscriptions     links to clients, and acknowledgements
stomp_transactions      transactions at the broker
stomp_client            frames of a client, and what they mean
stomp_shared            what all clients share
stomp_clients           logins, rights and limits of clients
stomp_sockets, stomp_web, stomp_peers, stomp_door
                        connections and listeners
stomp_rows, metrics, app
                        what operators see; the process
"""
