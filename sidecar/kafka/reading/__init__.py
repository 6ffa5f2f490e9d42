"""Reads partitions: to an end, by offset, or as the tail of a delay partition.

:mod:`sidecar.kafka.reading.scan` is the one loop that reads a partition to its end. The tail of a delay partition is
read by :mod:`sidecar.kafka.reading.fetching`, which takes each record out of the client as the log holds it and steps
over a batch that cannot be read, in the thread of :mod:`sidecar.kafka.reading.read_ahead`.
:mod:`sidecar.kafka.reading.offset_reader` reads single records again.
"""
