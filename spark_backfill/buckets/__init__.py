"""How a range of a delay topic becomes buckets of an index: divided, decided, sorted, cut, written and staged.

May import what all jobs share (the modules at the root of :mod:`spark_backfill`), and no other room. What runs on
executors is here: it has no configuration, metrics or log.

Start at :mod:`spark_backfill.buckets.plan`, then go where the records go: ``deciding``, ``runs``, ``cutting``,
``sink``, ``staging``.
"""
