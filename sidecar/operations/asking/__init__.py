"""Reaches a group of routers from a command: through Kafka, the admin API of a router, or the probes of one router.

Begin with :mod:`sidecar.operations.asking.side`, the questions and changes of both ways;
:mod:`sidecar.operations.asking.checking` is ``check``. These modules take longer to load than a shell waits for a
completion, so the command line loads them on demand.
"""
