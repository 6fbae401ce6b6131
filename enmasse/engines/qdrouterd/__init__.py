"""Apache Qpid Dispatch as our router. `router.py`: the engine; `probe.py`: the probe of its health."""
