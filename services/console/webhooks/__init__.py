"""Webhooks: events and alerts that are posted to receivers of the operator."""
