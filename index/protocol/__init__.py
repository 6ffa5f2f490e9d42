"""The protocol: the headers by which a record asks for a delay, and the headers that the router adds.

Begin with :mod:`index.protocol.headers` (the names) and :mod:`index.protocol.schedule` (the decision about a record).
:mod:`index.protocol.recurring` reads the headers of a series, :mod:`index.protocol.occurrences` and
:mod:`index.protocol.moving` make the records that stand for the next occurrence and for a moved schedule.
"""
