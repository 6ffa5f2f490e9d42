"""One transaction, from a planned batch to its commit: records leave, are rejected, or wait for their target.

Begin with :mod:`sidecar.engine.release.transaction`, the value that all modules here share, and
:mod:`sidecar.engine.release.releaser`, which plans, screens (:mod:`sidecar.engine.release.screening`) and commits a
transaction, and tells the owners of its requests. :mod:`sidecar.engine.release.occurring` writes the next occurrence of
a recurring schedule. :mod:`sidecar.engine.release.aside` knows the partitions that must not be written to.
:mod:`sidecar.kafka.writing.kafka_transactions` is the way to Kafka.
"""
