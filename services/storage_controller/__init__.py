"""The storage controller: makes brokers, places queues and topics on them, reports where these lie and how they are.

`contents`, `core`, `fleet`, `policies` decide (pure); `drivers` and `provisioner` make brokers; `management`,
`conversation`, `removal`, `quiet` fill them. Imports enmasse.control, enmasse.reconcile, enmasse.model; no other service.
"""
