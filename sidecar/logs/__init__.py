"""The log: one JSON object per line on stderr, written by a thread of its own; a trouble shows once a minute at most.

May import: nothing of :mod:`sidecar`. Begin with :mod:`sidecar.logs.events`.
"""
