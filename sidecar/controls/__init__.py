"""Controls written for somebody who waits for their receipts.

May import: ``intake``, ``kafka``, ``config``. Begin with :mod:`sidecar.controls.ordering`;
:mod:`sidecar.controls.replacing` is for who writes the record itself.
"""
