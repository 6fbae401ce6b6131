"""Tests of services/mqtt_gateway."""
