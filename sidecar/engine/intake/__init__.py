"""Intake: decides each record that was read, and puts it into the index in offset order.

Begin with :mod:`sidecar.engine.intake.deciding` and :mod:`sidecar.engine.intake.intake`.
:mod:`sidecar.process.host.read_ahead` reads and decides some fetches ahead, in a thread.
"""
