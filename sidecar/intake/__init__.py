"""Reading a delay partition in offset order and deciding each record, some fetches ahead of the index.

May import: ``payload``, ``kernel``, ``kafka``, ``config``. Begin with :mod:`sidecar.intake.deciding` and
:mod:`sidecar.intake.intake`, which indexes what :mod:`sidecar.intake.read_ahead` has read in a thread. How a record
comes out of the client as it is in the log, and how a batch that cannot be read is stepped over, stands in
:mod:`sidecar.intake.fetching`.
"""
