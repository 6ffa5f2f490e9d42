"""The topics that a router needs: making them, checking them, telling how to mend them.

May import: ``kafka``, ``config``. Begin with :mod:`sidecar.topics.topics`; ``init`` and ``check`` are modules here.
"""
