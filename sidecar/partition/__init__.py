"""One owned delay partition: taking it over, and the round of indexing and releasing.

May import: every room that does something for a partition (``intake``, ``release``, ``series``, ``buckets``,
``backfill``, ``healing``, ``payload``, ``policies``, ``topics``, ``kafka``, ``config``). Begin with
:mod:`sidecar.partition.worker`, then :mod:`sidecar.partition.owned_partition` and :mod:`sidecar.partition.rounds`.
These two and what they are made of know of Kafka only what :mod:`sidecar.partition.ports` says.
"""
