"""Apache ActiveMQ Artemis as our broker: its distribution, the files of one instance, and its live state.

`distribution.py`: the pinned version, fetched once into the user's cache. `instance.py`: the template of an instance,
pure: the local supervisor writes what it makes into a folder, the Kubernetes driver into a ConfigMap.
`class_archive.py`: what makes its start quick. `broker.py`: the engine; `probe.py`: the probe of its health. `live.py`:
live state, which it does not offer, from its listings; `client_rows.py`: of its connections and links.
"""
