"""One owned delay partition: its take-over, and the round that indexes and releases.

May import: every room that works for a partition (``intake``, ``release``, ``series``, ``buckets``,
``backfill``, ``healing``, ``payload``, ``policies``, ``topics``, ``kafka``, ``config``). Begin with
:mod:`sidecar.partition.worker`, then :mod:`sidecar.partition.owned_partition` and :mod:`sidecar.partition.rounds`.
Both of them, and their parts, reach Kafka only through :mod:`sidecar.partition.ports`.
"""
