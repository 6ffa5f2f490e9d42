"""Buckets: seals, loads, merges and removes the records that are pending outside memory, and trims the topics.

Begin with :mod:`sidecar.engine.buckets.lifecycle`, which decides the work on buckets that the next transaction carries.
"""
