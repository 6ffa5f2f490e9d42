"""One router process: its workers, its probes, and which delay topics it serves.

May import: ``partition``, ``topics``, ``kafka``, ``config``. Begin with
:mod:`sidecar.process.workers`; everything is connected in :mod:`sidecar.app`.
"""
