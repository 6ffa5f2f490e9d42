"""Schedules with an id: the places of their records, controls, receipts, and the offsets of cancelled records.

Begin with :mod:`index.named.named`. :mod:`index.named.names` maps ids to places in memory, :mod:`index.named.id_pages`
does so for sealed buckets. :mod:`index.named.mask` has the cancelled offsets, :mod:`index.named.transit` the records
that the router has appended to its own delay partition and not read yet, :mod:`index.named.queries` the predicates that
have cancelled all schedules in front of them that match.
"""
