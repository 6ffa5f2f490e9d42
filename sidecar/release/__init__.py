"""One transaction, from a planned batch to committed: what leaves, what is refused, what has to wait.

May import: ``series``, ``payload``, ``kernel``, ``kafka``, ``config``. Begin with
:mod:`sidecar.release.transaction`, the value that everything turns on, and :mod:`sidecar.release.releaser`, which
plans, screens (:mod:`sidecar.release.screening`), commits and tells. To Kafka it goes through
:mod:`sidecar.release.kafka_transactions`, which writes (:mod:`sidecar.release.writer`) and finds what brokers refuse
(:mod:`sidecar.release.refusals`).
"""
