"""The topics and rights that a router needs: making them, checking them, printing them as commands.

May import: ``kafka``, ``config``. Begin with :mod:`sidecar.topics.topics`; ``init`` and ``check`` are modules here.
"""
