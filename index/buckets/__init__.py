"""Buckets: immutable sets of pending entries, cut into segments, and the rules for sealing and merging them.

Begin with :mod:`index.buckets.bucket` and :mod:`index.buckets.bucket_rules`.
"""
