"""Segments and manifests: the entries of a bucket as bytes.

Begin with :mod:`snapshots.segments.segment` (drawn byte by byte) and :mod:`snapshots.segments.manifest`.
"""
