"""``export``: what is pending of a delay topic as a table, beside routers that go on.

May import :mod:`spark_backfill.build` and :mod:`spark_backfill.buckets` (which topics there are, intents, and what a
job says of itself), and what all jobs share (the modules at the root of :mod:`spark_backfill`).

What is pending is said by stored state, as of one moment (:mod:`spark_backfill.export.moment`)::

    state at the moment ─► held                                    ─────────────────────────► held
                        ─► segments ─► decode ─┬─► with records    ─► decide (Arrow) ───────► indexed
                           (tasks)             └─► without ─┐                                 or gone
    delay topic, read by the connector ─► below S ──────── join ──► decide
                                       ─► from S to its end ──────► decide ─────────────────► indexed, not_indexed

What decides is :mod:`snapshots.pending`, by the rules that the state has for each offset. Start at
:mod:`spark_backfill.export.job`.
"""
