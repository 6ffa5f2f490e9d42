"""Reading a delay partition in offset order and deciding each record, some fetches ahead of the index.

May import: ``payload``, ``kafka``, ``config``. Begin with :mod:`sidecar.intake.intake`; how a record comes out of the
client as it is in the log stands in :mod:`sidecar.intake.fetching`.
"""
