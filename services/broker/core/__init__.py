"""The broker without sockets, files and clocks: what exists (`catalogue`), how much is held (`usage`), what queues do
with messages (`queue`), and what of it has to be on disk (`persistence`, `arrivals`). Imports of the project only the
AMQP codec, the log and `services.broker.selector`; no module here imports another in a circle."""
