"""Hosts owned partitions in a process: one thread each, and the parts that the partitions share.

Begin with :mod:`sidecar.process.host.worker`, the thread of one partition, and :mod:`sidecar.process.host.kafka_host`,
which implements the ports of the engine (:mod:`sidecar.engine.ownership.ports`) with clients.
"""
