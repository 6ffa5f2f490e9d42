"""``index`` and ``rebuild``: which offsets of a delay topic they are about, and how a job runs from there.

May import :mod:`spark_backfill.buckets` (how a range of offsets becomes buckets) and what all jobs share (the modules
at the root of :mod:`spark_backfill`).

Start at :mod:`spark_backfill.build.index_job`; ``rebuild`` is the same job behind
:mod:`spark_backfill.build.released`, which leaves out what has left the delay topic already.
"""
