"""CoAP gateway: clients of CoAP (RFC 7252) over UDP send messages to addresses, and observe them.

coap_paths, coap_mapping    tables: paths, parameters, Content-Formats
coap_answers                codes of answers
coap_memory                 endpoints and the requests that are remembered, retransmission, bounds
coap_uploads                bodies that come in blocks
coap_observations           links to observers
coap_visitors               who clients are
coap_requests               what requests mean
coap_door, app              sockets; the process
"""
