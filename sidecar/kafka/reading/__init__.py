"""Reads partitions: to an end, by offset, or as the tail of a delay partition.

:mod:`sidecar.kafka.reading.scan` is the one loop that reads a partition to its end.
:mod:`sidecar.kafka.reading.fetching` reads the tail of a delay partition: it takes each record out of the client as the
log holds it, and steps over a batch that cannot be read. The thread for it is :mod:`sidecar.process.host.read_ahead`.
:mod:`sidecar.kafka.reading.offset_reader` reads single records again.
"""
