"""Hosts owned partitions in a process: one thread each, and the parts that the partitions share.

Begin with :mod:`sidecar.process.host.worker`, the thread that goes through the loop of one partition, and
:mod:`sidecar.process.host.kafka_host`. The two implement the ports of the engine
(:mod:`sidecar.engine.ownership.ports`). The threads compute one after the other
(:mod:`sidecar.process.host.turnstile`).
"""
