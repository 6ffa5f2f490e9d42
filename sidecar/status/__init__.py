"""Answers for the whole group: the reports of each router, and the questions that any router answers from them.

May import: ``finding``, ``partition`` (its status), ``policies``, ``intake``, ``kafka``, ``config``. Begin with
:mod:`sidecar.status.answers` (the questions and the shapes of the answers) and :mod:`sidecar.status.inquiries` (the
way to an answer).
"""
