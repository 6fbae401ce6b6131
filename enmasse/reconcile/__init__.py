"""The loop that all controllers share: desired state, actual state, difference, until both are equal; and its reports.

`Reconciler` works on one managed object (a router, a broker, a cluster), `ReadinessBook` holds the reported readiness
of each address. Imports the model, the log and the back-off; no AMQP, no files: the managed object is a `Managed`.
"""

from enmasse.reconcile.delivered_sources import Sources
from enmasse.reconcile.readiness import ReadinessBook
from enmasse.reconcile.reconciler import NEVER, NOW, Managed, Reconciler, Step

__all__ = ["NEVER", "NOW", "Managed", "ReadinessBook", "Reconciler", "Sources", "Step"]
