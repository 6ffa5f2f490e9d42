"""Payload: a record between intake and release, whole or packed as a row of a segment, and the memory it takes.

Begin with :mod:`sidecar.engine.payload.records`.
"""
