"""One router process: its workers, its probes, and the delay topics that it serves.

May import: ``partition``, ``topics``, ``kafka``, ``config``. Begin with
:mod:`sidecar.process.workers`; everything is connected in :mod:`sidecar.app`.
"""
