"""The topics that a router needs: creates them, checks them, and tells how to repair them.

May import: ``kafka``, ``config``. Begin with :mod:`sidecar.topics.topics`; ``init`` and ``check`` are modules here.
"""
