"""The supervisor behind `enmasse up`: starts and watches the processes of the suite and serves HTTP.

errors.py    StartError: why the suite cannot start, for people
limits.py    how many files may be open
datadir.py   the data directory: lock, format version, free space
ports.py     public ports are checked, internal ones are chosen and kept
plan.py      which services run, with which settings
logfile.py   one bounded log file per child
probe.py     asks a child's /healthz
child.py     one child process: start, watch, restart, stop
desired.py   the local driver: what the storage controller wants, what it got
status.py    components and the status feed become the JSON of `enmasse status`
feed.py      configserv's status feed and `force`, over AMQP
suite.py     all of it together
welcome.py   the entry points and first commands, printed when it is ready
web.py       HTTP: /healthz, /api/status, /api/scale, /api/force, /metrics
"""
