"""``index`` and ``rebuild``: chooses the offsets of a delay topic, and runs the job on them.

It may import :mod:`spark_backfill.buckets`, which turns a range of offsets into buckets, and the shared modules at the
root of :mod:`spark_backfill`.

Start at :mod:`spark_backfill.build.index_job`; ``rebuild`` is the same job behind :mod:`spark_backfill.build.released`,
which leaves out the records that have left the delay topic already.
"""
