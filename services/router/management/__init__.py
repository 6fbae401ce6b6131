"""The management node `$management`: entity types, their bodies, tables, the node that answers requests.

It imports `network` and `routing`; neither knows it. A ValueError of the domain becomes a ManagementError here.
"""
