"""Entries in memory, sorted by (due, offset): the records that wait, and the two numbers that tell which have left.

Begin with :mod:`index.pending.progress` (cursor and watermark) and :mod:`index.pending.pending` (an entry).
:mod:`index.pending.run` and :mod:`index.pending.waiting` keep entries by the million.
"""
