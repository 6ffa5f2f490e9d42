"""``schedule``: turns a table of schedules from another system into records of a delay topic, each row exactly once.

It may import the shared modules at the root of :mod:`spark_backfill`, and no other package of it.

Start at :mod:`spark_backfill.schedule.job`; :mod:`spark_backfill.schedule.row` decides a single row.
"""
