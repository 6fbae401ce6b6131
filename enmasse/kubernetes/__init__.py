"""The Kubernetes API for configserv, the storage controller and the command line; no other module imports it.

`api_server`: requests about objects as decoded JSON. `watch`: a complete view of objects, kept in a thread. `lease`:
which of several processes leads; `member`: a process of an installation. `config_maps`: what ConfigMaps hold; `forced`:
what is ordered with them. `warning_events`: warnings for `kubectl get events`. `labels`: the names that all share. The
package `kubernetes` (the extra of that name) gives addresses, TLS and authentication; it takes a second to import, so
only `api_server.connect` does. May import the model, the log, the back-off, health and what a process is.
"""
