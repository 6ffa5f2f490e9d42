"""Writes transactions, finds the records that brokers refuse, and looks up targets.

Begin with :mod:`sidecar.kafka.writing.kafka_transactions`: it writes (:mod:`sidecar.kafka.writing.writer`), commits in
a lane (:mod:`sidecar.kafka.writing.lane`), and finds refused records (:mod:`sidecar.kafka.writing.refusals`).
:mod:`sidecar.kafka.writing.lanes` has the lanes of the process.
"""
