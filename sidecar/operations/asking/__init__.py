"""Reaches a group of routers from a command: through the admin API or the probes of a router, or for ``check``.

Begin with :mod:`sidecar.operations.asking.api_client`, the questions and changes over HTTP;
:mod:`sidecar.operations.asking.checking` is ``check``. These modules take longer to load than a shell waits for a
completion, so the command line loads them on demand.
"""
