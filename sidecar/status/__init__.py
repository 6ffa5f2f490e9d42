"""Answers for the whole group: what each router reports, and what can be asked of all of them.

May import: ``finding``, ``partition`` (its status), ``policies``, ``intake``, ``kafka``, ``config``. Begin with
:mod:`sidecar.status.answers`, what may be asked, and :mod:`sidecar.status.inquiries`, how it is answered.
"""
