"""The log: one JSON object per line on stderr, written by a thread of its own; a trouble shows once a minute at most.

Begin with :mod:`sidecar.logs.events`.
"""
