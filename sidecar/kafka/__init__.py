"""Every dealing with librdkafka: the settings of each client, its errors, its connections, the consumer group.

May import: ``config``, ``logs``. Begin with :mod:`sidecar.kafka.clients` (one function a role) and
:mod:`sidecar.kafka.errors` (what each error means for the partition that met it).
"""
