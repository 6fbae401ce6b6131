"""The loop that all controllers share: desired, actual, difference, until both are equal; and what they report of it.

`Reconciler` works on one managed thing (a router, a broker, a cluster), `ReadinessBook` holds what is reported of each
address. Imports the model, the log and the back-off; no AMQP, no files: what is managed comes in as a `Managed`.
"""

from enmasse.reconcile.readiness import ReadinessBook
from enmasse.reconcile.reconciler import NEVER, NOW, Managed, Reconciler, Step
from enmasse.reconcile.sources import Sources

__all__ = ["NEVER", "NOW", "Managed", "ReadinessBook", "Reconciler", "Sources", "Step"]
