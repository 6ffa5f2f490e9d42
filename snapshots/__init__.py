"""Bytes and addresses: the records that Kafka stores about a delay partition, and their encoding.

Everything stored is a protobuf message in an envelope with magic, version, length and checksum
(:mod:`snapshots.envelope`), written by one owner inside its transactions and still untrusted when read: caps come
before any expansion, and a value that cannot be understood is refused by name.

:mod:`snapshots.state.state` is the state topic: progress and the rules in force; :mod:`snapshots.segments.manifest` its
buckets. A bucket lies in the snapshots topic, cut into segments (:mod:`snapshots.segments.segment`), with pages of its
ids beside them (:mod:`snapshots.segments.id_pages`). :mod:`snapshots.state.staged` is the backfill topic: buckets that
wait to be adopted. No I/O happens here; the caller hands in and takes out keys and values. ``python -m snapshots
inspect`` shows one to a person.
"""
