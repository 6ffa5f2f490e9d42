"""Bytes and addresses: the records that Kafka stores about a delay partition, and their encoding.

Each stored value is a protobuf message in an envelope with magic, version, length and checksum
(:mod:`snapshots.envelope`). Only the fenced owner of a partition writes its state. A reader trusts no value: it checks
limits before it expands anything, and refuses a value that it cannot understand, with the key in the error.

:mod:`snapshots.state.state` encodes the state topic, and :mod:`snapshots.segments.manifest` the manifests of buckets in
it. A bucket lies in the snapshots topic, cut into segments (:mod:`snapshots.segments.segment`), with pages of its ids
behind them (:mod:`snapshots.segments.id_pages`). :mod:`snapshots.state.staged` encodes the backfill topic: buckets that
a job has staged for the owner. This package does no I/O: callers pass keys and values. ``python -m snapshots inspect``
shows a stored value to a person.
"""
