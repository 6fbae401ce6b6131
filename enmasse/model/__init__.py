"""Configuration: addresses, flavors, brokers made by hand; parsed, validated, in one canonical form.

`names` are names of addresses, `feeds` the bodies of the configuration service, `configuration` what applies of the
files, `topic_map` MQTT topics and filters over the addresses. Pure: no files, no sockets, no clock.
Imports nothing of the project.
"""
