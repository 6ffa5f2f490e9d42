"""Writes transactions, finds the records that brokers refuse, and looks up targets.

Begin with :mod:`sidecar.kafka.writing.kafka_transactions`: it writes (:mod:`sidecar.kafka.writing.writer`), commits,
and finds refused records (:mod:`sidecar.kafka.writing.refusals`).
"""
