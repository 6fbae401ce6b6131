"""Apache ActiveMQ Artemis as our broker: where its distribution comes from, and the files of one instance.

`distribution.py`: the pinned version, fetched once into the user's cache. `instance.py`: the template of an instance,
pure: the local supervisor writes what it makes into a folder, the Kubernetes driver into a ConfigMap.
`archive.py`: what makes its start quick. `broker.py`: the engine; `probe.py`: the probe of its health.
"""
