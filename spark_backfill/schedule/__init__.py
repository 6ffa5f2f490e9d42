"""``schedule``: turns a table of schedules from elsewhere into records of a delay topic, each row exactly once.

May import what all jobs share (the modules at the root of :mod:`spark_backfill`), and no other room.

Start at :mod:`spark_backfill.schedule.job`; what a row asks for is in :mod:`spark_backfill.schedule.row`.
"""
