"""The reports of the routers of a group over the last hour, and the state of their processes; kept in memory.

Begin with :mod:`sidecar.operations.watching.history`.
"""
