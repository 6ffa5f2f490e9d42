"""Writes records, and controls for a caller that waits for their receipts.

Begin with :mod:`sidecar.operations.controls.ordering`; :mod:`sidecar.operations.controls.replacing` is for a record
that replaces schedules, and :mod:`sidecar.operations.controls.writing` writes a record.
"""
