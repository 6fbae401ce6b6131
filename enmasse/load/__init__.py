"""Load that is not the limit: `amqp` and `mqtt` make, acknowledge and count frames in bulk, not one by one.

Clients cost more for each message than a router does, so what they measure is themselves. Here frames that are alike
are one text of rows of the same size: ids and times are written and read as columns (`fixed_rows`), by slices with a
stride. `enmasse bench`, the benchmarks and the tests use this, so both sides of a comparison get the same load.

`door_senders` are plain clients of gateways, which cost more than AMQP and MQTT in bulk: `enmasse bench --protocol`.
"""
