"""How a command reaches a group of routers: by Kafka itself, by the admin API of one, or one router by its probes.

May import: ``rejected``, ``status``, ``policies``, ``topics``, ``kafka``, ``config``. Begin with
:mod:`sidecar.asking.side`, what can be asked and changed either way; :mod:`sidecar.asking.checking` is ``check``.
Loading these takes longer than a shell waits for a completion, so the command line does it when it asks.
"""
