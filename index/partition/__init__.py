"""The index of one delay partition as a whole: it indexes, plans transactions, seals, merges and adopts buckets.

Begin with :mod:`index.partition.partition`. :mod:`index.partition.entering` takes records in,
:mod:`index.partition.pending_set` keeps entries in memory and in buckets, :mod:`index.partition.batch` is the content
of one transaction.
"""
