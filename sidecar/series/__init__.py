"""Recurring schedules of one partition: decides which series begin, which occurrence a record is, and its successor.

May import: ``payload``. Begin with :mod:`sidecar.series.occurring`. :mod:`index.recurring` says how a schedule recurs,
and :mod:`index.occurrences` when the next occurrence is due. The rules of time zones come from the package tzdata alone
(:mod:`sidecar.series.zones`).
"""
