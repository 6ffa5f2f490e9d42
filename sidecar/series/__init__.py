"""Recurring schedules of one partition: what is begun, which occurrence a record is, and what follows it.

May import: ``payload``. Begin with :mod:`sidecar.series.occurring`. How a schedule recurs stands in
:mod:`index.recurring`, and when the next occurrence is due in :mod:`index.occurrences`; the rules of time zones come
from the package tzdata alone (:mod:`sidecar.series.zones`).
"""
