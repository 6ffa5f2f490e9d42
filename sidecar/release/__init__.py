"""One transaction, from a planned batch to its commit: records leave, are rejected, or wait for their target.

May import: ``series``, ``payload``, ``kernel``, ``kafka``, ``config``. Begin with
:mod:`sidecar.release.transaction`, the value that all modules here share, and :mod:`sidecar.release.releaser`, which
plans, screens (:mod:`sidecar.release.screening`) and commits a transaction, and tells the owners of its requests.
:mod:`sidecar.release.kafka_transactions` is the way to Kafka: it writes (:mod:`sidecar.release.writer`), and finds the
records that brokers refuse (:mod:`sidecar.release.refusals`).
"""
