"""The log: one JSON object a line on stderr, written by a thread of its own, each trouble once and then once a minute.

May import: nothing of :mod:`sidecar`. Begin with :mod:`sidecar.logs.events`.
"""
