"""``audit``: counts from the topics alone the records sent, released, rejected, doubled, early and lost.

It may import the shared modules at the root of :mod:`spark_backfill`, and no other package of it: it judges the work of
the router and of the other jobs, so it computes due times and targets by itself.

Start at :mod:`spark_backfill.audit.job`.
"""
