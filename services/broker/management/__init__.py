"""The management node `activemq.management`: operations by the names, arities and texts of Apache ActiveMQ Artemis. A
request is parsed (`node`), its operation found by name and kinds of parameters (`calls`), and a typed function calls
the core. Imports the core and the selector; the core knows nothing of it."""
