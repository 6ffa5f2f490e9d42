"""``audit``: counts from the topics alone what was sent, released, rejected, doubled, early and lost.

May import what all jobs share (the modules at the root of :mod:`spark_backfill`), and no other room: it judges what the
router did and what the other jobs built, so it works out due times and targets by itself.

Start at :mod:`spark_backfill.audit.job`.
"""
