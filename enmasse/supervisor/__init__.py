"""The supervisor behind `enmasse up`: starts and watches the processes of the suite, and serves HTTP.

`suite` puts it together; `child` is one process, `brokers` those that the storage controller desires, `replicas` those
that users scale, `status` the status for users. The products that it runs are in enmasse/engines. May import everything
of enmasse but the command line; knows services only as `python -m services.NAME`.
"""
