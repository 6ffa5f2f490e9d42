"""Writes controls for a caller that waits for their receipts.

May import: ``intake``, ``kafka``, ``config``. Begin with :mod:`sidecar.controls.ordering`;
:mod:`sidecar.controls.replacing` is for a caller that writes the replacing record itself.
"""
