"""What the routers of a group have told over the last hour, and how their processes fare; kept in memory.

Begin with :mod:`sidecar.operations.watching.history`.
"""
