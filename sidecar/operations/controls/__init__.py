"""Writes controls for a caller that waits for their receipts.

Begin with :mod:`sidecar.operations.controls.ordering`; :mod:`sidecar.operations.controls.replacing` is for a caller
that writes the replacing record itself.
"""
