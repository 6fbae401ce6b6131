"""The management node `activemq.management`: operations by the names, arities and texts of Apache ActiveMQ Artemis."""
