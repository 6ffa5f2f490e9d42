"""``export``: writes the pending records of a delay topic as a table, beside routers that go on.

It may import :mod:`spark_backfill.build` and :mod:`spark_backfill.buckets` (for topics, intents and progress), and the
shared modules at the root of :mod:`spark_backfill`.

Stored state decides which records are pending, as of one moment (:mod:`spark_backfill.export.moment`)::

    state at the moment ─► held                                    ─────────────────────────► held
                        ─► segments ─► decode ─┬─► with records    ─► decide (Arrow) ───────► indexed
                           (tasks)             └─► without ─┐                                 or gone
    delay topic, read by the connector ─► below S ──────── join ──► decide
                                       ─► from S to its end ──────► decide ─────────────────► indexed, not_indexed

:mod:`snapshots.state.pending` decides, by the rules that the state has for each offset. Start at
:mod:`spark_backfill.export.job`.
"""
