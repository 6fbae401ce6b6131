"""The configuration service: reads the files, publishes snapshots, collects reports, merges them into one status.

`service` decides what each change publishes; the other modules own one state each (README.md). May import
enmasse.control, enmasse.model and what all services share; `address_phases`, `reported_readiness`, `revisions` know no
sockets and no clock.
"""
