"""Payload: a record between indexing and release, whole or packed as a row of a segment, and the memory it takes.

May import: nothing of :mod:`sidecar`. Begin with :mod:`sidecar.payload.records`.
"""
