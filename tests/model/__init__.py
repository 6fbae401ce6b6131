"""Tests of enmasse.model without a service around it."""
