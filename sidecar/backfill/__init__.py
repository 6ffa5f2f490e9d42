"""Backfill: watches the buckets that Spark jobs stage for a partition, adopts them, and restores lost state from them.

May import: ``intake``, ``payload``, ``release``, ``kafka``, ``config``. Begin with :mod:`sidecar.backfill.adopting`.
"""
