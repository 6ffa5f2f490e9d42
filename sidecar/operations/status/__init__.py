"""Answers for the whole group: the reports of each router, and the questions that any router answers from them.

Begin with :mod:`sidecar.operations.status.answers` (the shapes of the answers) and
:mod:`sidecar.operations.status.inquiries` (the way to an answer).
"""
