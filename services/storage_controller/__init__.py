"""The storage controller: makes brokers, places queues and topics on them, reports where these lie and how they are.

`desired`, `inventory`, `placement` decide (pure); `drivers` and `provisioner` make brokers; `management`,
`conversation`, `removal`, `topic_levels`, `idle_check` fill them; `rollout` says whose turn it is to be restarted.
Imports enmasse.control, .reconcile and .model; no other service.
"""
