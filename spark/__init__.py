"""The telemetry pipeline: an application on the Spark connector, which is `enmasse.spark`.

`pipeline` reads readings of devices from an address, applies stages of `enmasse.spark` to them, and sends and stores
what they make; `pipeline_file` is the file that says which stages run. Imports `enmasse`; nothing imports this package.
"""
