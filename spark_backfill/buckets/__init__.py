"""Builds buckets of an index from a range of a delay topic: divides, decides, sorts, cuts, writes and stages.

It may import the shared modules at the root of :mod:`spark_backfill`, and no other package of it. The code that runs on
executors is here: it has no configuration, metrics or log.

Start at :mod:`spark_backfill.buckets.plan`, then follow the records: ``deciding``, ``runs``, ``cutting``, ``sink``,
``staging``.
"""
