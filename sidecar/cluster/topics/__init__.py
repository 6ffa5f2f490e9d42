"""The topics that a router needs: creates them, checks them, and tells how to repair them.

Begin with :mod:`sidecar.cluster.topics.topics`; ``init`` and ``check`` are modules here.
"""
