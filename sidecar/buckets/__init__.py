"""Buckets: seals, loads, merges and removes the records that are pending outside memory, and trims the topics.

May import: ``intake``, ``payload``, ``release``, ``kafka``, ``config``. Begin with :mod:`sidecar.buckets.lifecycle`,
which decides the work on buckets that the next transaction carries.
"""
