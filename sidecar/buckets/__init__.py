"""What is pending outside memory: sealing, loading, merging and removing buckets, trimming topics.

May import: ``intake``, ``payload``, ``release``, ``kafka``, ``config``. Begin with
:mod:`sidecar.buckets.lifecycle`, which says what the next transaction is to do for buckets.
"""
