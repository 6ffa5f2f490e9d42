"""Intake: reads a delay partition in offset order and decides each record, some fetches ahead of the index.

May import: ``payload``, ``kernel``, ``kafka``, ``config``. Begin with :mod:`sidecar.intake.deciding` and
:mod:`sidecar.intake.intake`, which indexes the records that :mod:`sidecar.intake.read_ahead` has read in a thread.
:mod:`sidecar.intake.fetching` takes each record out of the client as the log holds it, and steps over a batch that
cannot be read.
"""
