"""Ending transactions of a partition that the brokers have left open, before anything else is written.

May import: ``buckets``, ``release``, ``intake``, ``payload``, ``topics``, ``kafka``, ``config``. Begin with
:mod:`sidecar.healing.healing`; what is decided is pure, in :mod:`index.orphans`.
"""
