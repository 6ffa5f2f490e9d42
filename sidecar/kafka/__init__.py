"""All contact with the Kafka client.

===========  ========================================================================================
room         duty
===========  ========================================================================================
``client``   settings of each client, meaning of each error, connections, the consumer group, requests
``reading``  reads partitions: to an end, by offset, or as the tail of a delay partition
``writing``  writes transactions, finds the records that brokers refuse, looks targets up
``doubts``   finds and ends transactions that the brokers may have forgotten
===========  ========================================================================================

Begin with :mod:`sidecar.kafka.client.clients` (one function for each role of a client) and
:mod:`sidecar.kafka.client.errors` (the meaning of each error for the partition that met it).
"""
