"""The management node `$management`: entity types, bodies, tables, the agent that answers requests.

It imports `network` and `routing`; neither knows it. A ValueError of the domain becomes a ManagementError here.
"""
