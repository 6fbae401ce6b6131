"""Bytes of STOMP and CoAP, to messages and back, for their gateways and for `enmasse bench`. Pure."""
