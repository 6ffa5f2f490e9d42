"""All contact with librdkafka: the settings of each client, its errors, its connections, the consumer group.

May import: ``config``, ``logs``. Begin with :mod:`sidecar.kafka.clients` (one function for each role of a client) and
:mod:`sidecar.kafka.errors` (the meaning of each error for the partition that met it); :mod:`sidecar.kafka.scan` reads
partitions to an end, or follows them.
"""
