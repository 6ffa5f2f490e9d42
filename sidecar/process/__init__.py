"""One router process: its workers, its health, its memory, and the delay topics that it serves.

Begin with :mod:`sidecar.process.workers`; :mod:`sidecar.process.host` has the thread of one partition, and everything
is connected in :mod:`sidecar.app`.
"""
